"""trackio: a project per study, a group per arm; local, in `trackers/trackio` unless TRACKIO_DIR is set."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from ablate.tracking import TrackedRun

REMEDY = "pip install trackio"


@dataclass
class TrackioRun:
    """A run in trackio, whose prints are redirected to standard error: standard output is for our results."""

    run: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step)

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        with redirect_stdout(sys.stderr):
            self.run.log({**{f"final/{name}": value for name, value in summary.items()}, "status": status})
            self.run.finish()


def begin(run: TrackedRun) -> TrackioRun:
    os.environ.setdefault("TRACKIO_DIR", str(run.folder.resolve()))  # read on import
    init = importlib.import_module("trackio").init
    with redirect_stdout(sys.stderr):
        # In a context of its own: otherwise each run would end the previous one.
        found = Context().run(
            init,
            project=run.study,
            name=f"{run.scale} {run.name} {run.digest}",
            group=run.group,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    return TrackioRun(found)
