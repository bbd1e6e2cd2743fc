"""Final losses from the logs of other trainers: Hugging Face's Trainer, TensorBoard, Weights & Biases, JSON lines, CSV,
and text.

A pattern such as `logs/{arm}-s{seed}/trainer_state.json` names the files, and gives the arm and seed of each.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import polars as pl

from ablate.wings.compare.log_readers import (
    BARE,
    GONE,
    NUMBER,
    SECOND,
    Log,
    by_number,
    differ_by_numbers,
    of_runs,
    read,
)
from store.errors import ArgumentError, reason_of
from zoo.errors import did_you_mean

NO_NUMBER = re.compile(rf"(?:tensor\(\s*)?{GONE}(?!\w).*")
"""Values of a loss that has diverged, however it is written."""
STEPS = (
    *("global_step", "global step", "train/global_step", "trainer/global_step", "step", "iter", "iteration", "_step"),
    BARE,
)
"""Names of the step counter in logs, in order of preference; `_step`, W&B's own, counts calls to log."""
COUNTERS = {"step": STEPS, "epoch": ("epoch", "train epoch", "train/epoch")}
"""Counters that tell when a run ended early: steps may start again in each epoch, or not at all."""
ALIKE = 0.98
"""Fraction of its arm's last step from which on a run counts as ended."""
LOSSES = tuple(f"{word}{mark}loss" for word in ("eval", "val", "valid", "validation") for mark in "_/ ")
"""Names that trainers use for a validation loss, in order of preference."""
Run: TypeAlias = tuple[str, str, str]
"""Arm, seed (0 without `{seed}`) and size (empty without `{size}`)."""
IN_FILE = "#"
"""Mark between what Weights & Biases wrote and the pattern of the names of its runs."""
BUDGETS = {
    "flops": ("flops", "total_flos", "total_flops", "training_flops"),
    "tokens": (
        *("num_input_tokens_seen", "tokens", "n_tokens", "num_tokens", "n_tokens_seen", "tokens_seen", "total_tokens"),
        "throughput/total tokens",
    ),
    "tokens_per_second": (
        *("tokens_per_second", "tokens_per_sec", "tokens/s", "tokens/sec", "tok/s", "tps", "throughput(tps)"),
        "throughput/device/TPS",
    ),
}
"""Names of a run's budget and speed; logs are searched for them if the pattern has `{size}`."""
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern that names the logs of many runs."""
    return "{arm}" in path


def read_logs(pattern: str, metric: str | None = None) -> pl.DataFrame:
    """Last value of a metric in every log that a pattern names, as a frame: arm, seed, loss, step and epoch at which it
    was logged (null if the log has none; no column if none has an epoch), file, and metric, its name there. A last
    value that is no number, as null, NaN or N/A, is NaN: the run has failed. It is null for a run without the metric,
    if others of its arm have it. If the pattern has `{size}`, also size, and what the log has of flops, tokens and
    tokens_per_second.

    Args:
        pattern: path with `{arm}` and, if arms have several, `{seed}` and `{size}`; `*` stands for anything else within
            a name.
            A file is a `trainer_state.json`, an events file of TensorBoard, a `wandb-summary.json`, a CSV or TSV with a
            header, JSON lines, or text with lines such as `step 250: train loss 2.1, val loss 2.2`. A folder must hold
            such a file. `charts.csv#{arm}-s{seed}` names the runs in a CSV that a page of Weights & Biases exports.
        metric: its name in the logs; None: the first known of `LOSSES`, such as `eval_loss` or `val/loss`.

    Raises:
        ArgumentError: nothing matches, a file cannot be read, or no run of an arm has the metric.
    """
    rows: list[dict[str, object]] = []
    without: dict[str, ArgumentError] = {}
    for (arm, seed, size), path, log in _logs(pattern):
        last = _last(log, path, metric)
        if last["loss"] is None:
            without.setdefault(arm, _without(metric, log, path))
        rows.append({"arm": arm, "seed": seed, **last})
        if size:
            rows[-1] |= {"size": size, **{name: _latest(log, known) for name, known in BUDGETS.items()}}
        rows[-1]["file"] = str(path)
    for arm, error in without.items():
        if all(row["loss"] is None for row in rows if row["arm"] == arm):
            raise error
    types: dict[str, pl.DataType | type[pl.DataType]] = {
        **{"arm": pl.String, "seed": pl.String, "loss": pl.Float64, "step": pl.Float64, "epoch": pl.Float64},
        **({"size": pl.String, **dict.fromkeys(BUDGETS, pl.Float64)} if "{size}" in pattern else {}),
        **{"file": pl.String, "metric": pl.String},
    }
    found = pl.DataFrame(rows, schema=types)
    return found if found["epoch"].count() else found.drop("epoch")


def _logs(pattern: str) -> Iterator[tuple[Run, Path, Log]]:
    """Every run that a pattern names, with its file and records, in order of arm, seed and size."""
    before, _, names = pattern.rpartition(IN_FILE)
    file = Path(before)
    if not before or "{arm}" not in names or not file.exists():
        paths = log_paths(pattern)
        yield from ((run, paths[run], _read(paths[run], read)) for run in sorted(paths, key=_order))
        return
    logs, text = _read(file, of_runs), _as_regex(names)
    found = {name: named.groupdict() for name in logs if (named := re.fullmatch(text, name))}
    if not found:
        known = f"it has runs {', '.join(list(logs)[:6])}" if logs else "it has no run of Weights & Biases"
        raise ArgumentError("losses", f"no run matches {names}; {known}", file)
    runs: dict[Run, str] = {}
    for name, of in found.items():
        run = (of["arm"], of.get("seed") or "0", of.get("size") or "")
        if (other := runs.setdefault(run, name)) != name:
            raise ArgumentError("losses", f"{other} and {name} are {_both(run, names)}", file)
    yield from ((run, file, logs[runs[run]]) for run in sorted(runs, key=_order))


def _order(run: Run) -> tuple[object, ...]:
    """Sort key: by arm, size, seed, and `70M` before `160M`."""
    return run[0], _amount(run[2]) or 0.0, by_number(run[1]), run[2]


def _both(run: Run, pattern: str) -> str:
    """Description of two logs of one run, with the remedy."""
    remedy = "narrow the pattern to one of them" if "{seed}" in pattern else "add {seed} to the pattern"
    return f"both seed {run[1]} of {run[0]}: {remedy}"


def log_paths(pattern: str) -> dict[Run, Path]:
    """The log of each run that a pattern names, by arm, seed and size. Raises ArgumentError."""
    paths: dict[Run, Path] = {}
    for run, path in matches(pattern):
        other = paths.get(run, path)
        paths[run] = max(other, path, key=by_number)
        if other != path and not differ_by_numbers(other, path):
            raise ArgumentError("losses", f"{other} and {path} are {_both(run, pattern)}", pattern)
    if not paths:
        raise ArgumentError("losses", "no file or folder matches", pattern)
    return paths


def ended(logs: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The logs of runs whose loss is of the last step of their arm (and split), and a sentence on each run left out.

    A run whose last loss is not finite has failed, and is kept wherever it ended. The step counters of complete runs
    may differ by a few calls, hence `ALIKE`.
    """
    sizes = [name for name in ("size", "params") if name in logs.columns]
    counters = [name for name in COUNTERS if name in logs.columns]
    run = [name for name in ("arm", "split", *sizes) if name in logs.columns]
    logs = logs.with_columns(pl.col(name).max().over(run).alias(f"last {name}") for name in counters)
    early = {name: (pl.col(name) < ALIKE * pl.col(f"last {name}")).fill_null(False) for name in counters}
    short = pl.any_horizontal(early.values()) & pl.col("loss").is_finite().fill_null(False)
    by = pl.coalesce(pl.when(is_early).then(pl.lit(name)) for name, is_early in early.items())
    said = [
        f"seed {row['seed']} of {row['arm']}{' at ' + str(row[sizes[0]]) if sizes else ''} is left out: its loss is of "
        f"{row['by']} {row[row['by']]:g} of {row['last ' + row['by']]:g}"
        for row in logs.filter(short).with_columns(by=by).iter_rows(named=True)
    ]
    kept = logs.filter(~short).drop(f"last {name}" for name in counters)
    finite = kept.filter(pl.col("loss").is_finite())
    for name in counters if not sizes else ():
        ends = dict(finite.group_by("arm", maintain_order=True).agg(pl.col(name).max()).drop_nulls().iter_rows())
        if ends and min(ends.values()) < ALIKE * max(ends.values()):
            listed = ", ".join(f"{end:g} ({arm})" for arm, end in ends.items())
            said.insert(0, f"the arms' losses are of different {name}s: {listed}")
            break
    if unknown := finite.filter(pl.all_horizontal(pl.col(counters).is_null())).height:
        said.append(f"runs without a step, so that none is known to have ended: {unknown}")
    return kept, tuple(said)


def matches(pattern: str) -> Iterator[tuple[Run, Path]]:
    """Arm, seed (0 without `{seed}`) and size (empty without `{size}`) of everything that a pattern matches, and its
    path."""
    pattern = os.path.normpath(pattern)
    text = _as_regex(pattern)
    root = Path(pattern).anchor or "."
    glob = re.sub(r"\{(arm|seed|size)\}", "*", pattern).removeprefix(Path(pattern).anchor)
    try:
        paths = sorted(Path(root).glob(glob))
    except (ValueError, NotImplementedError) as error:
        raise ArgumentError("losses", f"no pattern: {reason_of(error)}", pattern) from error
    for path in paths:
        if found := re.fullmatch(text, str(path)):
            named = found.groupdict()
            yield (named["arm"], named.get("seed") or "0", named.get("size") or ""), path


def _as_regex(pattern: str) -> str:
    seen: set[str] = set()
    text = ""
    for part in re.split(r"(\{arm\}|\{seed\}|\{size\}|\*)", pattern):
        name = part.strip("{}")
        if part != name:
            # As much as possible is the arm's name: `no-skip-s0` is `no-skip`, and not `no`.
            text += f"(?P={name})" if name in seen else f"(?P<{name}>[^/\n]+{'' if name == 'arm' else '?'})"
            seen.add(name)
        else:
            text += "[^/]*" if part == "*" else re.escape(part)
    return text


T = TypeVar("T")


def _read(path: Path, reader: Callable[[Path], T]) -> T:
    try:
        return reader(path)
    except (OSError, ValueError, csv.Error, RecursionError, OverflowError) as error:
        raise ArgumentError("losses", f"cannot be read: {reason_of(error)}", path) from error


def _latest(log: Log, names: Iterable[str]) -> float | None:
    """The last number of the first name that a log has."""
    known = _names(log)
    for wanted in names:
        same = _spellings(wanted, known)
        if found := [value for record in log for name in same if (value := _amount(record.get(name)))]:
            return found[-1]
    return None


def _amount(value: object) -> float | None:
    """A number, also as `1.3B`."""
    unit = UNITS.get(value[-1:].casefold()) if isinstance(value, str) else None
    number = _number(str(value)[:-1] if unit else value)
    return number * unit if number is not None and unit else number


def _last(log: Log, path: Path, metric: str | None) -> dict[str, str | float | None]:
    """The last value of the metric in a log, as `loss`, its name as `metric`, and the `step` and `epoch` at which it
    was logged, None for what the log does not have. Raises ArgumentError."""
    known = _names(log)
    losses = [[metric]] * (metric in known) if metric else [_spellings(name, known) for name in LOSSES]
    names = next(filter(None, losses), [])
    if not names:
        return {"loss": None, "metric": None, **dict.fromkeys(COUNTERS)}
    values = [(record[name], place) for place, record in enumerate(log) for name in names if name in record]
    # Nulls between numbers only say that nothing was logged there; after the last number they are a loss that is gone.
    numbers = [place for place, (value, _) in enumerate(values) if value is not None]
    padded = any(value is None for value, _ in values[: numbers[-1]]) if numbers else False
    last = numbers[-1] if padded else len(values) - 1
    value, place = values[last]
    found = math.nan if value is None or NO_NUMBER.fullmatch(str(value)) else _number(value)
    if found is None:
        raise ArgumentError("losses", f"the last {names[0]} is {str(value)!r}, which is no number", path)
    at = _counts(log[place::-1], known)
    others = [log[place][name] for name in (*names, names[0] + SECOND) if name in log[place]]
    if last and any(_counts([log[place]], known).values()):
        # Twice at one step, unless a counter has moved between them, such as that of epochs or of a new progress bar.
        earlier, before = values[last - 1]
        carried = _counts(log[before::-1], known)
        moved = (item for record in log[before + 1 : place + 1] for item in _counts([record], known).items())
        if all(number in (None, carried[counter]) for counter, number in moved):
            others.append(earlier)
    if unlike := [other for other in map(_number, others) if other is not None and abs(other - found) > 0]:
        where = next((f" at {counter} {number:g}" for counter, number in at.items() if number is not None), "")
        said = f"has two values of {names[0]}{where}, {unlike[0]:g} and {found:g}: remove one, or give it another name"
        raise ArgumentError("losses", said, path)
    return {"loss": found, "metric": names[0], **at}


def _counts(records: Log, known: Sequence[str]) -> dict[str, float | None]:
    """The first number of every counter in records."""
    counted = {
        counter: (number for name in spelt if (same := _spellings(name, known)) for number in _numbers(records, same))
        for counter, spelt in COUNTERS.items()
    }
    return {counter: next(numbers, None) for counter, numbers in counted.items()}


def _names(log: Log) -> list[str]:
    return list(dict.fromkeys(name for record in log for name in record))


def _spellings(wanted: str, known: Iterable[str]) -> list[str]:
    """Names that are the wanted one, in any case. `best val loss` is another name than `val loss`."""
    return [each for each in known if each.casefold() == wanted.casefold()]


def _numbers(log: Log, names: Sequence[str]) -> Iterator[float]:
    """Numbers under any of these names, in the order of the records."""
    return (value for record in log for name in names if (value := _number(record.get(name))) is not None)


def _number(value: object) -> float | None:
    """A number as it is written in logs; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return float(value.replace(",", "")) if re.fullmatch(NUMBER, value.strip()) else None
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any length
        return math.inf


def _without(metric: str | None, log: Log, path: Path) -> ArgumentError:
    """The error for a log that lacks the metric."""
    numbers = (name for record in log for name, value in record.items() if _number(value) is not None)
    names = list(dict.fromkeys(numbers))
    known = f"it has: {', '.join(names[:20])}" if names else "it has no named numbers"
    if metric:
        return ArgumentError("metric", f"{path} has no {metric}{did_you_mean(metric, names)}; {known}", metric)
    other = "; to judge another value, give its name as the metric" if names else ""
    return ArgumentError("losses", f"has no validation loss, such as eval_loss or val/loss; {known}{other}", path)
