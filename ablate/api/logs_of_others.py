"""Final losses from the logs of other trainers: Hugging Face's Trainer, TensorBoard, Weights & Biases, JSON lines, CSV,
and text.

A pattern such as `logs/{arm}-s{seed}/trainer_state.json` names the files, and gives the arm and seed of each.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from store.errors import ArgumentError, reason_of
from zoo.errors import did_you_mean

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
TEXTS = (".txt", ".log", ".out")
STEPS = ("global_step", "train/global_step", "trainer/global_step", "step", "iter", "iteration", "Step", "_step")
"""Names of the step counter in logs, in order of preference; `_step`, W&B's own, counts calls to log."""
ALIKE = 0.98
"""Fraction of its arm's last step from which on a run counts as ended."""
LOSSES = ("eval_loss", "eval/loss", "val_loss", "val loss")
"""Names that trainers use for a validation loss, in order of preference."""
WANDB_SUMMARY = "wandb-summary.json"


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern that names the logs of many runs."""
    return "{arm}" in path


def read_logs(pattern: str, metric: str | None = None) -> pl.DataFrame:
    """Last value of a metric in every log that a pattern names, as a frame: arm, seed, loss, and the last step (null
    if the log has none).

    Args:
        pattern: path with `{arm}` and, if arms have several, `{seed}`; `*` stands for anything else within a name.
            A file is a `trainer_state.json`, an events file of TensorBoard, a `wandb-summary.json`, a CSV or TSV with a
            header, JSON lines, or text with lines such as `step 250: train loss 2.1, val loss 2.2`. A folder must hold
            such a file.
        metric: its name in the logs; None: the first known of `eval_loss`, `eval/loss`, `val_loss` and `val loss`.

    Raises:
        ArgumentError: nothing matches, a file cannot be read, or it has no such metric.
    """
    paths: dict[tuple[str, str], Path] = {}
    for arm, seed, path in _named(pattern):
        if (other := paths.setdefault((arm, seed), path)) != path:
            remedy = "narrow the pattern to one of them" if "{seed}" in pattern else "add {seed} to the pattern"
            raise ArgumentError("losses", f"{other} and {path} are both seed {seed} of {arm}: {remedy}", pattern)
    if not paths:
        raise ArgumentError("losses", "no file or folder matches", pattern)
    rows = [(*run, *_last(path, metric)) for run, path in paths.items()]
    types = {"arm": pl.String, "seed": pl.String, "loss": pl.Float64, "step": pl.Float64}
    return pl.DataFrame(sorted(rows, key=lambda row: row[:2]), schema=types, orient="row")


def ended(logs: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The logs of runs that reached the last step of their arm (and split), and a sentence on each run left out.

    A run whose last loss is not finite has failed, and is kept wherever it ended. The step counters of complete runs
    may differ by a few calls, hence `ALIKE`.
    """
    furthest = pl.col("step").max().over([name for name in ("arm", "split") if name in logs.columns])
    short = ((pl.col("step") < ALIKE * furthest) & pl.col("loss").is_finite()).fill_null(False)
    left_out = logs.with_columns(furthest=furthest).filter(short)
    said = tuple(
        f"seed {row['seed']} of {row['arm']} is left out: its log ends at step {row['step']:g} of {row['furthest']:g}"
        for row in left_out.iter_rows(named=True)
    )
    return logs.filter(~short), said


def _named(pattern: str) -> Iterator[tuple[str, str, Path]]:
    """Arm, seed (0 without `{seed}`) and path of everything that a pattern matches."""
    parts = re.split(r"(\{arm\}|\{seed\}|\*)", pattern)
    seen: set[str] = set()
    text = ""
    for part in parts:
        name = part.strip("{}")
        if part in ("{arm}", "{seed}"):
            text += f"(?P={name})" if name in seen else f"(?P<{name}>[^/]+?)"
            seen.add(name)
        else:
            text += "[^/]*" if part == "*" else re.escape(part)
    root = Path(pattern).anchor or "."
    glob = re.sub(r"\{arm\}|\{seed\}", "*", pattern).removeprefix(Path(pattern).anchor)
    for path in sorted(Path(root).glob(glob)):
        if found := re.fullmatch(text, str(path)):
            yield found["arm"], found.groupdict().get("seed") or "0", path


def _last(path: Path, metric: str | None) -> tuple[float, float | None]:
    """The last value of the metric in a log, and the last step, None if the log has no steps. Raises ArgumentError."""
    try:
        values = _reader(path)(path)
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise ArgumentError("losses", f"cannot be read: {reason_of(error)}", path) from error
    name = next((name for name in ([metric] if metric else LOSSES) if name in values), None)
    if name is None:
        raise _without(metric, values, path)
    return values[name], next((values[step] for step in STEPS if step in values), None)


def _without(metric: str | None, values: dict[str, float], path: Path) -> ArgumentError:
    """The error for a log that lacks the metric."""
    known = f"it has: {', '.join(list(values)[:20])}" if values else "it has no named numbers"
    if metric:
        return ArgumentError("metric", f"{path} has no {metric}{did_you_mean(metric, values)}; {known}", metric)
    other = "; to judge another value, give its name as the metric" if values else ""
    return ArgumentError("losses", f"has no {', '.join(LOSSES[:-1])} or {LOSSES[-1]}; {known}{other}", path)


def _reader(path: Path) -> Callable[[Path], dict[str, float]]:
    """The reader of a log, by its name and content."""
    if path.is_dir():
        return _folder
    if path.name.startswith("events.out.tfevents"):
        return _tensorboard
    if path.name == WANDB_SUMMARY:
        return _json
    if path.suffix == ".json":
        return _json
    if path.suffix in (".jsonl", ".ndjson"):
        return _json_lines
    return _text if path.suffix in TEXTS or not path.suffix else _csv


def _folder(folder: Path) -> dict[str, float]:
    """The one log in a folder, or in `files` below it, where Weights & Biases keeps its summary."""
    patterns = ("trainer_state.json", WANDB_SUMMARY, f"files/{WANDB_SUMMARY}", "events.out.tfevents*")
    found = next(filter(None, (sorted(folder.glob(pattern)) for pattern in patterns)), [])  # events: the newest is last
    if not found:
        raise ValueError(f"the folder has none of {', '.join(patterns)}")
    return _reader(found[-1])(found[-1])


def _json(path: Path) -> dict[str, float]:
    """Last value of each name in the history of transformers' Trainer, in a list of records, or in a map."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return _of_records(found.get("log_history", [found]) if isinstance(found, dict) else found)


def _json_lines(path: Path) -> dict[str, float]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return _of_records([json.loads(line) for line in lines if line.strip()])


def _of_records(records: Any) -> dict[str, float]:
    """Last value of each name in a list of records. Raises ValueError for anything else."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError("expected an object of numbers, or a list of them, alone or as `log_history`")
    return _numbers(item for record in records for item in record.items())


def _tensorboard(path: Path) -> dict[str, float]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415 (an extra)
            EventAccumulator,
        )
    except ImportError as error:
        raise ArgumentError("losses", "event files need tensorboard: pip install tensorboard", path) from error
    events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
    if not last:
        return {}
    return {tag: found.value for tag, found in last.items()} | {"step": max(found.step for found in last.values())}


def _csv(path: Path) -> dict[str, float]:
    """The last number of every column."""
    mark = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        return _numbers(item for row in csv.DictReader(file, delimiter=mark) for item in row.items() if item[1])


def _text(path: Path) -> dict[str, float]:
    """Last value of each name, as trainers print them: `val loss 3.28`, `val_loss:3.28`, `loss = 3.28`."""
    found = re.findall(rf"([A-Za-z_][\w/ ]*?)\s*[:= ]\s*({NUMBER})(?![\w.])", path.read_text(encoding="utf-8"))
    return _numbers((name.strip(), value) for name, value in found)


def _numbers(items: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """The last number of each name; other values are ignored."""
    found: dict[str, float] = {}
    for name, value in items:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            with suppress(ValueError):
                found[str(name)] = float(value)
    return found
