"""trackio: a project per study, a group per arm. Local, in `trackers/trackio`, unless TRACKIO_DIR says otherwise."""

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
    """trackio prints on standard output, which is ours: it is sent to standard error."""

    run: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step)

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        with redirect_stdout(sys.stderr):
            self.run.log({**{f"final/{name}": value for name, value in summary.items()}, "status": status})
            self.run.finish()


def begin(run: TrackedRun) -> TrackioRun:
    os.environ.setdefault("TRACKIO_DIR", str(run.folder.resolve()))  # read when it is imported
    init = importlib.import_module("trackio").init
    with redirect_stdout(sys.stderr):
        # In a context of its own: otherwise each run would end the one before.
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
