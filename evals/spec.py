"""What is measured and evaluated on a trained model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from zoo.axis import Spec


class MeasureSpec(Spec):
    """Prefill and decode speed and cache bytes at every context × batch."""

    contexts: tuple[PositiveInt, ...] = Field(default=(64, 256), min_length=1, strict=False)
    batches: tuple[PositiveInt, ...] = Field(default=(1, 8), min_length=1, strict=False)
    seconds: PositiveFloat = 0.3
    """How long each point is repeated."""


def _ascending(multiples: tuple[int, ...]) -> tuple[int, ...]:
    """One spelling: each once, in order."""
    return tuple(sorted(set(multiples)))


class PositionsSpec(Spec):
    """Loss by position in windows of several times the training context (see `evals.positions`)."""

    multiples: Annotated[
        tuple[PositiveInt, ...], Field(min_length=1, max_length=16, strict=False), AfterValidator(_ascending)
    ] = (1, 2, 4)
    """Lengths of the windows, as multiples of the training context."""
    tokens: PositiveInt = 16_384
    """About how many tokens of held-out text are read at each length; at least one window is."""


def _lists(given: Any) -> Any:
    """One value may be written without brackets."""
    return {k: v if isinstance(v, list) else [v] for k, v in given.items()} if isinstance(given, dict) else given


class DiagnosticsSpec(Spec):
    """Accuracy by difficulty, for studies whose data are a task that is made (see `evals.diagnostics`)."""

    examples: PositiveInt = 256
    """How many of each difficulty are asked."""
    at: Annotated[dict[str, list[int]], BeforeValidator(_lists)] = Field(default={})
    """Difficulties in place of those of training, by the setting of the data: `{pairs: [4, 64]}`."""


class EvalSpec(Spec):
    """lm-eval tasks and loss by position for text, accuracy by difficulty for tasks that are made."""

    diagnostics: DiagnosticsSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """What is asked where the data are a task that is made; there alone, and then nothing else is."""
    positions: PositionsSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """`{multiples: [1, 2, 4]}`: loss by position up to four times the training context; null for none."""
    tasks: tuple[str, ...] = Field(default=("heldout_pairs", "heldout_text"), strict=False)
    """Names of tasks, or paths of task files; in a study relative to the study's file. Empty with `positions` alone."""
    include: tuple[str, ...] = Field(default=(), strict=False)
    """Folders with task files of your own; their names may then stand in `tasks`. Relative as `tasks` are."""
    limit: PositiveInt | None = None
    """At most so many items per task; null for all."""
    batch: PositiveInt = 16
    seed: int = 0
    """Seed of the items that are generated from held-out text, and of the stretches read for `positions`."""

    @field_validator("tasks")
    @classmethod
    def _something(cls, tasks: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not tasks and info.data.get("positions") is None and info.data.get("diagnostics") is None:
            raise PydanticCustomError("too_short", "needs at least one task, or positions")
        return tasks
