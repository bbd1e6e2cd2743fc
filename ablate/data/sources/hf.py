"""A dataset on the Hugging Face Hub, streamed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt

from ablate.data.error import DataError
from ablate.data.sources import TextSource
from ablate.data.sources._readers import string

INSTEAD = (
    "without a network, run with --set data.source=stdlib,"
    " or fetch the files beforehand and name them with data.source=files"
)


class HfSource(TextSource):
    """The first `limit` documents of a split, held in memory while the corpus is prepared.

    The corpus is known by the dataset's commit: with `revision` a full commit, a prepared corpus needs no network.
    Needs the package `datasets`.
    """

    source: Literal["hf"] = "hf"
    path: str
    """`HuggingFaceFW/fineweb-edu`, say."""
    name: str | None = None
    """The dataset's configuration."""
    split: str = "train"
    column: str = "text"
    revision: str | None = None
    """Branch, tag or commit; null for the newest."""
    limit: PositiveInt = 10_000
    """At most so many documents."""

    def documents(self, base: Path) -> Iterator[str]:
        where = f"{self.path}, split {self.split}"
        rows = _rows(self.path, self.name, self.split, self._commit(), self.column, self.limit)
        return (string(value, self.column, where) for value in rows if value is not None)

    def fingerprint(self) -> str:
        return f"hf:{self.path}@{self._commit()}:{self.name}:{self.split}:{self.column}[:{self.limit}]"

    def _commit(self) -> str:
        if self.revision and re.fullmatch(r"[0-9a-f]{40}", self.revision):
            return self.revision
        return _newest(self.path, self.revision)


@lru_cache
def _newest(path: str, revision: str | None) -> str:
    """The commit that `revision` names at this moment; asked once per process."""
    # Errors of whichever HTTP client huggingface_hub uses are bases of its own error.
    http_errors = _imported("huggingface_hub.errors").HfHubHTTPError.__bases__
    try:
        commit = _imported("huggingface_hub").HfApi().dataset_info(path, revision=revision, timeout=10).sha
    except (OSError, ValueError, *http_errors) as error:  # no network, no such dataset; a malformed name
        raise _unreachable(path, error) from error
    return str(commit)


@lru_cache(maxsize=1)
def _rows(path: str, name: str | None, split: str, commit: str, column: str, limit: int) -> tuple[Any, ...]:
    """Values of a column. Kept, since preparing a corpus reads it several times."""
    datasets = _imported("datasets")
    try:
        stream = datasets.load_dataset(path, name, split=split, revision=commit, streaming=True)
        rows = list(stream.take(limit))
    except (OSError, ValueError) as error:  # no network, no such dataset; no such name or split
        raise _unreachable(path, error) from error
    if rows and column not in rows[0]:
        raise DataError(f"{path} has no column {column!r}; there is: {', '.join(rows[0])}")
    return tuple(row[column] for row in rows)


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DataError(f"data.source=hf needs the package {package}: pip install {package}") from error


def _unreachable(path: str, error: Exception) -> DataError:
    reason = str(error).partition("\n")[0]
    return DataError(f"cannot read {path} from the Hugging Face Hub: {reason}; {INSTEAD}")
