"""What is measured and evaluated on a trained model."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from zoo.axis import Spec


class MeasureSpec(Spec):
    """Prefill and decode speed and cache bytes at every context × batch."""

    contexts: tuple[PositiveInt, ...] = Field(default=(64, 256), min_length=1, strict=False)
    batches: tuple[PositiveInt, ...] = Field(default=(1, 8), min_length=1, strict=False)
    seconds: PositiveFloat = 0.3
    """How long each point is repeated."""


class EvalSpec(Spec):
    """lm-eval tasks."""

    tasks: tuple[str, ...] = Field(default=("heldout_pairs", "heldout_text"), min_length=1, strict=False)
    """Names of tasks, or paths of task files; in a study relative to the study's file."""
    include: tuple[str, ...] = Field(default=(), strict=False)
    """Folders with task files of your own; their names may then stand in `tasks`. Relative as `tasks` are."""
    limit: PositiveInt | None = None
    """At most so many items per task; null for all."""
    batch: PositiveInt = 16
    seed: int = 0
    """Seed of the items that are generated from held-out text."""
