"""A dataset on the Hugging Face Hub, streamed."""

from __future__ import annotations

import importlib
import io
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Self, cast

import zstandard
from pydantic import PositiveInt

from ablate.data.sources import Progress, TextSource
from ablate.data.sources._records import string
from store.documents import TextMeta
from store.errors import DataError, UnreachableError

COMMIT_DIGITS = 40
REPORTED = 1000
"""Number of documents between progress reports."""

INSTEAD = (
    "without a network, run with --set data.source=stdlib,"
    " prepare the data where there is a network (ablate data STUDY), or use your own files with data.source=files"
)


class HfSource(TextSource):
    """The first `limit` documents of a split, downloaded to a temporary file while the corpus is prepared.

    The corpus is identified by the dataset's commit. If `revision` is not a full commit hash, the commit is that of the
    store's newest corpus of the same dataset and revision; only without one is the hub asked. A prepared corpus hence
    needs no network (`ablate data STUDY` prepares it). Needs the package `datasets`.
    """

    source: Literal["hf"] = "hf"
    of_its_place: ClassVar[tuple[str, ...]] = ("name", "split", "column", "revision")
    path: str
    """Name of the dataset on the hub: `HuggingFaceFW/fineweb-edu`."""
    name: str | None = None
    """The dataset's configuration."""
    split: str = "train"
    """Split of the dataset to read: `train`, `validation`."""
    column: str = "text"
    """Column of the dataset that holds the text of a document."""
    revision: str | None = None
    """Branch, tag or commit; null for the newest when the data was first prepared."""
    limit: PositiveInt = 10_000
    """Maximum number of documents."""

    def documents(self, base: Path) -> Iterator[str]:
        return self._downloaded().texts()

    def fetch(self, progress: Progress) -> None:
        self._downloaded().fill(progress)

    def _downloaded(self) -> _Download:
        return _download(self.path, self.name, self.split, self._commit(), self.column, self.limit)

    def pinned(self, prepared: Iterable[TextMeta]) -> Self:
        """A copy at the commit of the first prepared corpus of the same dataset and revision."""
        for meta in prepared:
            asked = HfSource.model_validate(meta.spec) if meta.spec["source"] == "hf" else None
            if asked is not None and (asked.path, asked.revision) == (self.path, self.revision):
                return self.model_copy(update={"revision": meta.content.partition("@")[2][:COMMIT_DIGITS]})
        return self

    def fingerprint(self) -> str:
        return f"hf:{self.path}@{self._commit()}:{self.name}:{self.split}:{self.column}[:{self.limit}]"

    def _commit(self) -> str:
        if self.revision and re.fullmatch(f"[0-9a-f]{{{COMMIT_DIGITS}}}", self.revision):
            return self.revision
        return _newest(self.path, self.revision)


@lru_cache
def _newest(path: str, revision: str | None) -> str:
    """The commit that `revision` names now; asked once per process."""
    # huggingface_hub's own error derives from the error of its HTTP client (requests or httpx): catch those bases.
    http_errors = _imported("huggingface_hub.errors").HfHubHTTPError.__bases__
    try:
        commit = _imported("huggingface_hub").HfApi().dataset_info(path, revision=revision, timeout=10).sha
    except (OSError, ValueError, *http_errors) as error:  # no network, no such dataset; a malformed name
        raise _unreachable(path, error) from error
    return str(commit)


@dataclass
class _Download:
    """The texts of a column, in a temporary file that is deleted when the process ends; streamed one at a time."""

    path: str
    name: str | None
    split: str
    commit: str
    column: str
    limit: int
    _file: IO[bytes] | None = None

    def fill(self, progress: Progress) -> IO[bytes]:
        """The file of texts, downloaded at the first call."""
        if self._file is None:
            file = tempfile.NamedTemporaryFile(prefix="ablate-hub-")  # noqa: SIM115 (it lives as long as the process)
            with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as lines:
                for count, text in enumerate(self._fetched(), start=1):
                    lines.write(json.dumps(text).encode() + b"\n")
                    if count % REPORTED == 0:
                        progress("download", count / self.limit)
            file.flush()
            progress("download", 1.0)
            self._file = cast(IO[bytes], file)
        return self._file

    def texts(self) -> Iterator[str]:
        name = self.fill(lambda stage, share: None).name
        with Path(name).open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
            yield from map(json.loads, io.BufferedReader(cast(io.RawIOBase, plain)))

    def _fetched(self) -> Iterator[str]:
        where = f"{self.path}, split {self.split}"
        for row in self._rows():
            if self.column not in row:
                raise DataError(f"{self.path} has no column {self.column!r}; columns: {', '.join(row)}")
            if row[self.column] is not None:
                yield string(row[self.column], self.column, where)

    def _rows(self) -> Iterator[Mapping[str, object]]:
        load = _imported("datasets").load_dataset
        try:
            stream = load(self.path, self.name, split=self.split, revision=self.commit, streaming=True)
            yield from stream.take(self.limit)
        except (OSError, ValueError) as error:  # no network, no such dataset; no such name or split
            raise _unreachable(self.path, error) from error


_download = lru_cache(maxsize=1)(_Download)
"""Cached: preparing a corpus reads the texts several times, and arms with other tokenizers read them again."""


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DataError(f"data.source=hf needs the package {package}: pip install {package}") from error


def _unreachable(path: str, error: Exception) -> DataError:
    if isinstance(error, OSError) and error.filename and error.strerror:  # a local file, not the network
        said = f"{error.filename}: {error.strerror}"
        return DataError(f"cannot cache {path} ({said}): set HF_HOME to a writable folder")
    reason = str(error).partition("\n")[0]
    answered = isinstance(error, ValueError) or getattr(error, "response", None) is not None
    kind = DataError if answered else UnreachableError
    return kind(f"cannot read {path} from the Hugging Face Hub: {reason}; {INSTEAD}")
