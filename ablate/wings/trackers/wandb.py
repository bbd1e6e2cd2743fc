"""Weights & Biases: a project per study, a group per arm. `WANDB_MODE=offline` keeps files in `trackers/wandb`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.tracking import TrackedRun

REMEDY = "pip install wandb"


@dataclass
class WandbRun:
    """A run in W&B. Its id is the run's digest, so that a resumed run continues it."""

    run: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # Not as wandb's own step, which cannot go back when a run resumes from its last checkpoint.
        self.run.log({"step": step, **values})

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        self.run.summary.update({**summary, "status": status})
        self.run.finish(exit_code=1 if status == "failed" else 0)


def begin(run: TrackedRun) -> WandbRun:
    wandb: Any = importlib.import_module("wandb")
    found = wandb.init(
        project=run.study,
        group=run.group,
        name=run.name,
        id=run.digest,
        resume="allow",
        config=dict(run.config),
        dir=str(run.folder),
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )
    found.define_metric("*", step_metric="step")
    return WandbRun(found)
