"""Records in the logs of other trainers, in the order in which they were written: maps from names to values as they
stand there. A record is what was logged at once: a row, a line, an object."""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ablate.wings.compare.loss_files import content_of, decoded, separator
from store.errors import ArgumentError

Log = list[dict[str, object]]
TEXTS = (".txt", ".log", ".out")
IN_FOLDERS = ("trainer_state.json", "*.wandb", "wandb-summary.json", "events.out.tfevents*", "metrics.csv")
"""Logs of a run that is named by its folder, in order of preference."""
DEEPEST = 3
"""Levels below such a folder on which logs are looked for: `lightning_logs/version_0/metrics.csv`."""
NUMBER = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
GONE = r"(?i:[-+]?(?:nan|inf(?:inity)?)|[-+]?1\.#\w+|n/?a|none|null|-{3,}|\*{3,}|\?+)"
VALUE = re.compile(
    r"([\s:=\[(<'\"])(?=[-+.0-9nNiI*?])"
    rf"([-+]?(?:[0-9]+(?:[.,][0-9]+)*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[kKmMbBgGtT]?|{GONE})(?!\w|#|\.[\w#])",
    re.ASCII,
)
"""The mark before a value in text, and the value: `3.28`, `1,234`, `0.4B`, `NaN`, and `3,28`, which is no number."""
_WORD = r"[A-Za-z_][^\s:=,;\[\]{}()'\"]{0,80}(?:[(\[][^\s()\[\]]{1,20}[)\]])?"
_WORDS = rf"(?<![A-Za-z_])({_WORD}(?: {_WORD}){{0,5}}?)['\"]?"
NAME = re.compile(rf"{_WORDS}(?:\s*(?:[:=→]|->)\s*|\s+(?:is\s+)?)[\[(<]?['\"]?(?:[A-Za-z_][\w.]*\(\s*)?['\"]?", re.I)
"""A name and what stands between it and its value: `val loss `, `eval/c4-validation/loss=`, `'val_loss': tensor(`."""
WORDED = re.compile(rf"{_WORDS}\s*[:=]\s*['\"]?([A-Za-z]\w*)(?=[\s,;'\"]|$)", re.I)
"""A name whose value is a word: `val_loss: diverged`."""
SECOND = ", the second"
COUNTED = re.compile(r"\s*/\s*\d+(?![\d/])")
"""What follows a counter: `[500/10000]`."""
PREAMBLE = re.compile(r"^(?:(?:debug|info|warning|error|v?\d[\d.]*) +)+", re.IGNORECASE)
"""Words before a name that a logger prints: a level, a version."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SET = r"(?<![a-z])(?:(eval|evaluat(?:e|ing|ion)|val|valid|validat(?:e|ing|ion))|(?:train|test)(?:ing)?)(?![a-z])"
SET = re.compile(_SET, re.IGNORECASE)
"""The word for a set of data; its group, if that is validation."""
ALONE = re.compile(rf"(?:^|[^\w\s/])\s*{_SET}\s*[^\w\s/]", re.IGNORECASE)
"""The same between marks: `[eval] step 20 loss 3.1`, `step 20 | valid | loss 3.1`."""
COUNTER = re.compile(r"(?:(.*?)[ _/])??((?:at|after|of) )?(step|iter|iteration|epoch)", re.IGNORECASE)
"""A counter and the words before it: `validate step`, `validation loss at step`, `end of epoch`."""
BARE = "n/N"
FORMATS = "JSON, JSON lines, CSV, TSV, text, event files of TensorBoard, and any of the text files as .gz"
UNREAD = (
    "is a log of Weights & Biases, which needs wandb: pip install wandb; or `wandb sync FOLDER` sends it, and its "
    "charts can then be exported as CSV"
)
EXPORTED = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<bound>__(?:MIN|MAX))?")
"""A column of a chart that the pages of Weights & Biases export."""


def read(path: Path) -> Log:
    """The records of a log of any format. Raises ValueError, csv.Error or OSError if it cannot be read."""
    if path.is_dir():
        return _folder(path)
    if path.name.startswith("events.out.tfevents"):
        return _tensorboard(path)
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    readers = {".json": _json, ".jsonl": _json_lines, ".ndjson": _json_lines, ".wandb": _wandb}
    return readers.get(suffix, _text if suffix in TEXTS or not suffix else _csv)(path)


def _folder(folder: Path) -> Log:
    """The uppermost log in a folder; of several, such as `checkpoint-500` and `checkpoint-1000`, that of the highest
    number."""
    is_unread = False
    for depth in range(DEEPEST + 1):
        for pattern in IN_FOLDERS:
            found = sorted({path.resolve() for path in folder.glob("*/" * depth + pattern)}, key=by_number)
            if found and pattern == "*.wandb" and not HAS_WANDB:
                is_unread = True
            elif found:
                if other := next((path for path in found if not differ_by_numbers(path, found[-1])), None):
                    raise ValueError(f"has both {other} and {found[-1]}: let the pattern name one of them")
                return read(found[-1])
    raise ValueError(UNREAD if is_unread else f"the folder has none of {', '.join(IN_FOLDERS)}")


def of_runs(path: Path) -> dict[str, Log]:
    """The logs in a CSV that a page of Weights & Biases exports, by the names of their runs: columns `Step`,
    `run - metric`, and their `__MIN` and `__MAX`. Or those of the runs in a folder that wandb wrote; a resumed run has
    several there, under one id. Raises ValueError for runs of one name."""
    logs: dict[str, Log] = {}
    if path.is_dir():
        ids: dict[str, str] = {}
        for file in sorted(path.glob("*run-*/*.wandb"), key=by_number):
            own, name, log = wandb_run(file)
            if (other := ids.setdefault(name, own)) != own:
                raise ValueError(f"the runs {other} and {own} are both named {name}: give each a name of its own")
            logs.setdefault(name, []).extend(log)
        return logs
    for record in _csv(path):
        rest = {name: value for name, value in record.items() if " - " not in name}
        for name, value in record.items():
            found = EXPORTED.fullmatch(name)
            if found and not found["bound"]:
                logs.setdefault(found["run"], []).append({**rest, found["metric"]: value})
    return logs


def _wandb(path: Path) -> Log:
    return wandb_run(path)[2]


def wandb_run(path: Path) -> tuple[str, str, Log]:
    """The id and the name of a run, and the history in its `.wandb` file. Raises ValueError."""
    if not HAS_WANDB:
        raise ValueError(UNREAD)
    proto = import_module("wandb.proto.wandb_internal_pb2")
    own, name, log = "", "", list[dict[str, object]]()
    # wandb itself reads these files in its service only. After 7 bytes come blocks of 32 KiB with parts of records: a
    # checksum in 4 bytes, the length in 2, the part's place in its record (1: alone, 4: the last), the part.
    content, at, begun = content_of(path), 7, b""
    if not content.startswith(b":W&B"):
        raise ValueError("is no log of Weights & Biases")
    while len(content) >= at + 7:
        if (left := BLOCK - at % BLOCK) < 7:
            at += left
            continue
        end = at + 7 + int.from_bytes(content[at + 4 : at + 6], "little")
        if len(content) < end:  # a run that was killed leaves part of a record
            break
        if zlib.crc32(content[at + 6 : end]) != int.from_bytes(content[at : at + 4], "little"):
            raise ValueError(f"is damaged at byte {at}")
        begun += content[at + 7 : end]
        if content[at + 6] in (1, 4):
            record = proto.Record.FromString(begun)
            own = record.run.run_id or own
            name = record.run.display_name or name
            found = {".".join(each.nested_key) or each.key: each.value_json for each in record.history.item}
            log += [{key: json.loads(value) for key, value in found.items()}] if found else []
            begun = b""
        at = end
    return own, name or own, log


BLOCK = 2**15
HAS_WANDB = find_spec("wandb") is not None
"""Whether the history of a run can be read; its summary does not tell at which step its loss was logged."""


def by_number(path: Path | str) -> tuple[list[int], str]:
    """Sort key: `checkpoint-1000` after `checkpoint-500`."""
    return [int(number) for number in re.findall(r"\d+", str(path))], str(path)


def differ_by_numbers(one: Path, other: Path) -> bool:
    """Whether two paths are equal but for numbers: `checkpoint-500` and `checkpoint-1000` of one run."""
    return re.sub(r"\d+", "0", str(one)) == re.sub(r"\d+", "0", str(other))


def _json(path: Path) -> Log:
    """The history of transformers' Trainer, a list of records, or a map."""
    found = json.loads(_content(path))
    return _of_records(found.get("log_history", [found]) if isinstance(found, dict) else found)


def _json_lines(path: Path) -> Log:
    """One object per line. A line that a kill tore is dropped: the last, or one that a resumed run wrote after."""
    lines = [line for line in _content(path).split("\n") if line.strip()]
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    if len(found) < len(lines) / 2:
        raise ValueError("most of its lines are not JSON")
    return _of_records(found)


def _of_records(records: Any) -> Log:
    """The records of a list. Raises ValueError for anything else."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError("expected an object of numbers, or a list of them, alone or as `log_history`")
    return [{str(name): value for name, value in record.items()} for record in records]


def _tensorboard(path: Path) -> Log:
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 (an extra)
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 (an extra)
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # noqa: PLC0415 (an extra)
        from tensorboard.util.tensor_util import make_ndarray  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ArgumentError("losses", "event files need tensorboard: pip install tensorboard protobuf", path) from error
    log: Log = []
    # Parsed here, since tensorboard's own reader takes a damaged record for the end of the log. A record: its length in
    # 8 bytes, their checksum in 4, the event, its checksum in 4.
    content, at = content_of(path), 0

    def checked(start: int, end: int) -> bytes:
        part = content[start:end]
        if masked_crc32c(part) != int.from_bytes(content[end : end + 4], "little"):
            raise ValueError(f"is damaged at byte {at}")
        return part

    while len(content) >= at + 12:  # a run that was killed leaves part of a record
        end = at + 12 + int.from_bytes(checked(at, at + 8), "little")
        if len(content) < end + 4:
            break
        try:
            event = Event.FromString(checked(at + 12, end))
        except DecodeError as error:
            raise ValueError(f"is damaged at byte {at}") from error
        at = end + 4
        record: dict[str, object] = {}
        for value in event.summary.value:
            if value.HasField("simple_value"):
                record[value.tag] = value.simple_value
            elif value.HasField("tensor") and value.tensor.dtype in FLOATS:
                found = make_ndarray(value.tensor)
                record |= {value.tag: float(found.item())} if found.size == 1 else {}
        log += [{**record, "step": event.step}] if record else []
    return log


FLOATS = (1, 2, 14, 19)  # codes of float32, float64, bfloat16 and float16 in event files


def _csv(path: Path) -> Log:
    """A record per row, without the cells that are empty: nothing was logged there. Lines that begin with `#` are
    comments. The separator is the one that the header has most of; with semicolons, a comma is the point of a
    decimal."""
    lines = [line for line in _content(path).splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return []
    mark = separator(lines[0])
    rows = csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=mark, skipinitialspace=True)
    names = [name.strip() for name in next(rows)]
    if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        raise ValueError(f"two columns are called {twice[0]!r}: keep one of them, or give one another name")
    records = ({name: cell.strip() for name, cell in zip(names, row, strict=False)} for row in rows)
    points = str.maketrans(",", ".") if mark == ";" else {}
    return [{name: cell.translate(points) for name, cell in record.items() if cell} for record in records]


def _text(path: Path) -> Log:
    """A record per line, of the names on it; the second of two equal names has that added. A counter without a name, as
    in `[500/10000]`, is called `n/N`. Where a line says that it is about validation, before its counter or apart from
    any name, `val ` is put before names that say of no set."""
    log: Log = []
    prefix, is_first, awaited = "", True, ""
    parts = VALUE.split(COLOURS.sub("", _content(path)))
    for before, mark, value, after in zip(parts[::3], parts[1::3], parts[2::3], parts[3::3], strict=False):
        is_new, name, alone, worded = _named_in(before, mark)
        log += worded
        if is_new or worded or not log:
            log.append({})
        if is_new:
            prefix, is_first, awaited = "", True, ""
        prefix = prefix if alone is None else alone
        if awaited and before.strip() in (":", "=", "is"):
            name, awaited, prefix = awaited, "", ""
        elif name is None:
            if not COUNTED.match(after):
                continue
            name = BARE
        elif found := COUNTER.fullmatch(name):
            words, joint, counter = found.groups()
            about = SET.search(words or "") if is_first else None
            if joint or about:
                awaited, name = words, counter
            prefix = _prefix(about) if about else prefix
        elif prefix and not SET.search(name):
            name = prefix + name
        is_first = False
        if log[-1].setdefault(name, value) != value:
            log[-1].setdefault(name + SECOND, value)
    return [record for record in [*log, *_named_in(parts[-1], "")[3]] if record]


@lru_cache(2**14)  # lines of one kind have the same text between their values
def _named_in(before: str, mark: str) -> tuple[bool, str | None, str | None, Log]:
    """Findings in the text before a value: whether a line begins there, the name at its end, the prefix by a set that
    stands alone, and records of names whose values are words."""
    lines = f"{before}{mark}|".splitlines()
    line = lines[-1][:-1]
    names = (NAME.fullmatch(line, start.start()) for start in re.finditer("(?<![A-Za-z_])[A-Za-z_]", line))
    found = next(filter(None, names), None)
    name = found and (PREAMBLE.sub("", found[1]) if " " in found[1] else found[1])
    alone = [_prefix(each) for each in ALONE.finditer(line[: found.start()] if found else line)]
    worded: Log = [{each[1]: each[2]} for each in WORDED.finditer(before + mark)]
    return len(lines) > 1, name, alone[-1] if alone else None, worded


def _prefix(about: re.Match[str]) -> str:
    """Text put before names on a line about this set."""
    return "val " if about[1] else ""


def _content(path: Path) -> str:
    content = content_of(path)
    try:
        text = decoded(content)
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # numbers are the same in all of these
    if "\0" in text:
        raise ValueError(f"is not text; formats that can be read: {FORMATS}")
    return text
