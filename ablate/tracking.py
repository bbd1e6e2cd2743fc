"""A run as trackers see it, and one run in a tracker.

A tracker is a file, of a wing or plugged in: `begin(run)` returns a `RunTracker`, and `REMEDY` is the advice if its
package is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from store.documents import JsonObject


@dataclass(frozen=True)
class TrackedRun:
    """A run for a tracker: `config` is its identity, `folder` is where a tracker keeps local files."""

    study: str
    scale: str
    arm: str
    seed: int
    digest: str
    config: JsonObject
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def group(self) -> str:
        """Name of the group of an arm's runs."""
        return f"{self.scale} {self.arm}"


class RunTracker(Protocol):
    """One run in one tracker."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of a step, by name."""
        ...

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        """End the run, with status `finished`, `diverged` or `failed`."""
        ...
