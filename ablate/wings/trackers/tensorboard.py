"""TensorBoard: event files in `trackers/tensorboard` of the store (`tensorboard --logdir` that folder)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.tracking import TrackedRun

REMEDY = "pip install tensorboard"


@dataclass
class TensorboardRun:
    """One folder of events for each run, named by study, scale, arm and seed."""

    events: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        for name, value in summary.items():
            self.events.add_scalar(f"final/{name}", value, 0)
        self.events.add_text("status", status)
        self.events.close()


def begin(run: TrackedRun) -> TensorboardRun:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional extra, and slow to import)

    events: Any = SummaryWriter(str(run.folder / f"{run.study}-{run.scale}" / f"{run.arm}-seed{run.seed}"))
    events.add_text("run", f"`{run.digest}`\n\n```json\n{json.dumps(run.config, indent=1)}\n```")
    return TensorboardRun(events)
