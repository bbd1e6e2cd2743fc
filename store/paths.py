"""Paths of all files of a store."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from store.documents import MergedRecord
from store.files import StoreError
from store.folders import DataFolder, StudyFolder
from store.logs import LogFile

FOLDERS = {
    "studies",
    "searches",
    "imports",
    "data",
    "described",
    "checkpoints",
    "calibration",
    "ledger",
    "campaigns",
    "slurm",
    "allowed",
    "trackers",
}
"""Top-level folders that are not of runs."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,39}")
"""Names of studies, arms and scales, which occur in file names, in edits by path, and in tables."""
DIGEST = re.compile(r"[0-9A-Za-z_]+(-[0-9A-Za-z_]+)*")


class Paths:
    """A store's files, whether or not they exist."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._run_dirs: dict[str, Path] = {}
        """Cache of folders by digest: a command needs that of each run many times."""

    @cached_property
    def absolute(self) -> Paths:
        """The same files, for a process with another working directory."""
        return Paths(self.root.resolve())

    # Runs that came from other stores

    @property
    def merged_log(self) -> LogFile[MergedRecord]:
        path, remedy = self.root / "merged.ndjson", "remove it: it only records which runs came from other stores"
        return LogFile(path, path.stem, remedy, MergedRecord)

    # Runs

    def run_dir(self, digest: str) -> Path:
        found = self._run_dirs.get(digest)
        if found is None:
            found = self._run_dirs[digest] = self.root / self.run_name(digest)
        return found

    def run_name(self, digest: str) -> str:
        """Name of the run's folder in the store."""
        return _checked(digest)

    def run_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "run.json"

    def metrics_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "metrics.ndjson"

    def probes_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "probes.ndjson"

    def state_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "state.pt"

    def shared_path(self, digest: str) -> Path:
        """The state that runs which are the same up to its step begin from."""
        return self.run_dir(digest) / "shared.pt"

    def model_dir(self, digest: str) -> Path:
        """The trained model, as `zoo.save` writes it, and its tokenizer."""
        return self.run_dir(digest) / "model"

    def published_dir(self, digest: str) -> Path:
        """The files of an imported model's tokenizer, as they were published."""
        return self.run_dir(digest) / "published"

    def tokenizer_path(self, digest: str) -> Path:
        return tokenizer_in(self.model_dir(digest))

    def result_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "result.json"

    def losses_path(self, digest: str) -> Path:
        """The final loss by document."""
        return self.run_dir(digest) / "losses.ndjson"

    def measure_path(self, digest: str, request: str) -> Path:
        return self.run_dir(digest) / f"measure-{_checked(request)}.json"

    def evals_path(self, digest: str, request: str) -> Path:
        return self.run_dir(digest) / f"evals-{_checked(request)}.json"

    def samples_path(self, digest: str, request: str) -> Path:
        return self.evals_path(digest, request).with_suffix(".samples.ndjson")

    def answers_path(self, digest: str) -> Path:
        """Cache of the model's answers; may be removed."""
        return self.run_dir(digest) / "answers.db"

    def trace_path(self, digest: str) -> Path:
        """The trace of some training steps, for a browser."""
        return self.run_dir(digest) / "trace.json.gz"

    def error_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "error.txt"

    def log_path(self, digest: str) -> Path:
        """The log of its workers."""
        return self.run_dir(digest) / "log.txt"

    def written(self, digest: str) -> list[os.DirEntry[str]]:
        """Directory entries of a run's documents and logs; empty if its folder is absent or private."""
        with suppress(FileNotFoundError, PermissionError), os.scandir(self.run_dir(digest)) as entries:
            return [entry for entry in entries if entry.name.endswith("json")]
        return []

    # Other folders

    def study(self, name: str, scale: str) -> StudyFolder:
        """A study's folder. Characters outside `[A-Za-z0-9_.~-]` are percent-encoded, so that any name is safe."""
        return StudyFolder(self.root / "studies" / folder_name(name, scale))

    def data(self, digest: str) -> DataFolder:
        return DataFolder(self.data_dir / digest)

    @property
    def data_dir(self) -> Path:
        return self.root / "data"

    def checkpoint_dir(self, digest: str) -> Path:
        """A model that was trained elsewhere, as `zoo.save` writes it, and its tokenizer if it came with one."""
        return self.root / "checkpoints" / _checked(digest)

    def import_path(self, name: str) -> Path:
        """An imported model's document; any name is safe, as for studies."""
        return self.root / "imports" / f"{quote(name, safe='')}.json"

    @property
    def slurm_dir(self) -> Path:
        """The files of submitit for jobs that are queued, running or failed."""
        return self.root / "slurm"

    def calibration_path(self, digest: str) -> Path:
        return self.root / "calibration" / f"{_checked(digest)}.json"

    def ledger_path(self, name: str) -> Path:
        """The judgements for the question of that study, at any scale."""
        return self.root / "ledger" / f"{quote(name, safe='')}.ndjson"

    @property
    def index_path(self) -> Path:
        return self.root / "index.html"

    @property
    def trade_offs_path(self) -> Path:
        return self.root / "trade-offs.html"


def tokenizer_in(model_dir: Path) -> Path:
    """The tokenizer of a saved model."""
    return model_dir / "tokenizer.json"


def folder_name(name: str, scale: str) -> str:
    """Name of the folder of a study or a search."""
    return f"{quote(name, safe='')}-{quote(scale, safe='')}"


def _checked(digest: str) -> str:
    if not DIGEST.fullmatch(digest) or digest in FOLDERS:
        raise StoreError(f"{digest!r} is not a valid digest")
    return digest
