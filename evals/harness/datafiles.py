"""Data sets of tasks: files that the user names, or the hub's, from its cache or the network."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import datasets
import huggingface_hub
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from datasets import Dataset
from datasets.exceptions import DatasetsError

from evals.harness.catalogue import TaskConfig
from evals.harness.selection import DATA_SUFFIXES
from store.files import check_regular

MOST_BYTES = 2**30
"""Largest file of a task: a small one may unpack to more than the memory."""
SPLITS = ("test_split", "validation_split", "training_split", "fewshot_split")


Made = TypeVar("Made")


class TaskDataError(ValueError):
    """A task's data is not available; the message has the reason and the remedy."""


def local(task: str, config: TaskConfig, place: Path) -> dict[str, Dataset]:
    """Splits that a task reads, from a file, which serves as every split, or from a folder.

    A folder may hold a file or a folder per subset, named after the data set's subset or the task, and files per split,
    named after it (`validation.jsonl`, `test-00000-of-00001.parquet`). Raises TaskDataError if no split is found.
    """
    wanted = list(dict.fromkeys(config[key] for key in SPLITS if config.get(key)))
    names = [name for name in (config.get("dataset_name"), task) if name]
    place = _subset(place, names)
    found = {split: files for split in wanted if (files := _files(place, split))}
    if not found:
        likely = " or ".join(f"{name}.jsonl" for name in (*names, *wanted))
        raise TaskDataError(f"{place} has no data for this task; expected files such as {likely}")
    return {split: _read(place, files) for split, files in found.items()}


def _subset(place: Path, names: list[str]) -> Path:
    """File or folder of the subset if the folder `place` has one, else `place`."""
    for name in names if place.is_dir() else ():
        for path in (place / name, *(place / f"{name}{suffix}" for suffix in DATA_SUFFIXES)):
            if path.exists():
                return path
    return place


def _files(place: Path, split: str) -> list[Path]:
    if place.is_file():
        return [place]
    named = sorted(path for path in place.glob(f"{split}*") if path.name.endswith(DATA_SUFFIXES))
    return [path for path in named if path.name[len(split)] in "-_."]


def _read(place: Path, files: list[Path]) -> Dataset:
    parts = [_rows(path) for path in files]
    try:
        return datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]
    except ValueError as error:  # columns of different types
        raise TaskDataError(f"{place} cannot be read: {error}") from error


def _rows(path: Path) -> Dataset:
    """Rows of a parquet file, a JSON list of objects, or JSON lines, also gzipped. Raises TaskDataError."""
    if not path.name.endswith(DATA_SUFFIXES):
        raise TaskDataError(f"{path} must end in one of {', '.join(DATA_SUFFIXES)}")
    try:
        content = _content(path)
        found = Dataset(_table(content)) if path.suffix == ".parquet" else _objects(content.decode())
    except (OSError, ValueError, EOFError, OverflowError, RecursionError, zlib.error, pa.ArrowException) as error:
        raise TaskDataError(f"{path} cannot be read: {error}") from error
    if not len(found):
        raise TaskDataError(f"{path} has no rows")
    return found


def _table(content: bytes) -> pa.Table:
    """The rows of a parquet file. Raises ValueError if they unpack to more than `MOST_BYTES`."""
    file, batches, size = pq.ParquetFile(io.BytesIO(content)), list[pa.RecordBatch](), 0
    for batch in file.iter_batches(batch_size=1000):
        size += batch.nbytes
        _check_size(size)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=file.schema_arrow)


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES // 2**30} GiB, unpacked")


def _content(path: Path) -> bytes:
    check_regular(path)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    _check_size(len(content))
    return content


def _check_files(path: str, given: Any) -> None:
    """Raise TaskDataError for files that `datasets` would wait for, and for JSON at which its reader would crash; other
    mistakes are left to it. given: names or patterns of files, or of each split."""
    parts = given.values() if isinstance(given, Mapping) else [given or ()]
    texts = ([part] if isinstance(part, str) else part for part in parts if isinstance(part, str | list))
    names = [name for part in texts for name in part]
    found = (Path(each) for name in names for each in glob(str(name), recursive=True))  # noqa: PTH207 (may be absolute)
    for file in (each for each in found if not each.is_dir()):
        try:
            check_regular(file)
            if path == "json":
                _check_json(_content(file).decode(errors="replace"))
        except (OSError, ValueError, EOFError, RecursionError, zlib.error) as error:
            raise TaskDataError(f"{file} cannot be read: {error}") from error


def _check_json(text: str) -> None:
    """Raise RecursionError for deep nesting and ValueError for a row that is null: Arrow's reader crashes at either."""
    for each in (text, *text.split("\n")):
        rows: Any = None
        with suppress(ValueError):
            rows = json.loads(each)
        if each.lstrip("\ufeff\t\r [").startswith("null") or (isinstance(rows, list) and None in rows):
            raise ValueError("a row is null")


def _objects(text: str) -> Dataset:
    """Rows of a JSON list or JSON lines. Only a line feed ends a line, unlike for `str.splitlines`."""
    rows = json.loads(text) if text.lstrip().startswith("[") else list(_lines(text))
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected JSON objects")
    return Dataset.from_list(rows)


def _lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def from_hub(config: TaskConfig, fetch: str) -> Any:
    """The data set that a task's file names: the copy in the cache, or else the hub's. Raises TaskDataError.

    fetch: the command that downloads it, to be named in the message if the hub cannot be reached.
    """
    path, name = config["dataset_path"], config.get("dataset_name")
    options = {key: value for key, value in (config.get("dataset_kwargs") or {}).items() if key != "trust_remote_code"}
    _check_files(path, options.get("data_files"))
    try:
        with _offline():
            return _loaded(path, name, **options)
    except (ConnectionError, ValueError) as error:  # a ValueError: other subsets are in the cache
        if not _hub_answers():
            what = path if name is None else f"{path} ({name})"
            reason = f"the data set {what} is not in the cache, and the hub cannot be reached"
            raise TaskDataError(f"{reason}. On a machine with a network, run: {fetch}") from error
    except (OSError, DatasetsError) as error:
        raise TaskDataError(_why(path, error)) from error
    try:
        return _loaded(path, name, **options)
    except (
        OSError,
        ValueError,
        RuntimeError,
        DatasetsError,
    ) as error:  # a RuntimeError: loading scripts of data sets are not run
        raise TaskDataError(_why(path, error)) from error


def _loaded(path: str, name: str | None, **options: Any) -> Any:
    """The data set, in a temporary cache for this process if the usual one is not writable."""
    try:
        return datasets.load_dataset(path, name, **options)
    except OSError as error:
        if error.filename is None or "cache_dir" in options:  # an error of the hub, or of a folder that the task names
            raise
    return datasets.load_dataset(path, name, cache_dir=_spare_cache().name, **options)


@cache
def _spare_cache() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="ablate-datasets-")


def _why(path: str, error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, DatasetsError) and isinstance(error.__cause__, Exception) else error
    return f"the data set {path} cannot be loaded: {first_line(cause)}"


def first_line(error: Exception) -> str:
    """First line of an error's message, or its type name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def offline_first(make: Callable[[], Made], fetch: str) -> Made:
    """Result of `make`, which loads its own data: from the cache, or else from the hub, as in `from_hub`. Raises
    TaskDataError."""
    try:
        with _offline():
            return make()
    except OSError as error:
        if not _hub_answers():
            reason = f"its data set is not in the cache, and the hub cannot be reached ({first_line(error)})"
            raise TaskDataError(f"{reason}. On a machine with a network, run: {fetch}") from error
    try:
        return make()
    except OSError as error:
        raise TaskDataError(f"its data set cannot be loaded: {first_line(error)}") from error


@contextmanager
def _offline() -> Iterator[None]:
    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before


def _hub_answers() -> bool:
    return not huggingface_hub.constants.HF_HUB_OFFLINE and _answers(huggingface_hub.constants.ENDPOINT)


@cache
def _answers(address: str) -> bool:
    """Whether an address answers, asked once per process: the libraries would retry each data set for half a minute."""
    try:
        urlopen(Request(address, method="HEAD"), timeout=5)
    except HTTPError:  # a refusal is an answer
        return True
    except OSError:
        return False
    return True
