"""One file of JSON lines for each run, in `trackers/ndjson` of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.tracking import TrackedRun


@dataclass
class Lines:
    path: Path

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._write({"step": step, **values})

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        self._write({"status": status, **summary})

    def _write(self, row: Mapping[str, float | str]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def begin(run: TrackedRun) -> Lines:
    return Lines(run.folder / f"{run.study}-{run.arm}-{run.seed}.ndjson")
