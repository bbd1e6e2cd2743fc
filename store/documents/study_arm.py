"""The arms of `study.json`: the plan of each, and its runs."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, PositiveInt

from store.documents._document import (
    Bytes,
    BytesPerToken,
    FlopsPerToken,
    JsonObject,
    Parameters,
    Part,
    Percent,
    Seconds,
    Tokens,
    Unit,
    is_none,
)
from store.documents.length import Length


class StudyRun(Part):
    """A run of an arm."""

    digest: str
    """The name of its folder."""
    seed: int
    """Its seed."""


class CacheBytes(Part):
    """Declared size of a cache at batch 1."""

    context: Tokens
    """Tokens in the cache."""
    bytes: Bytes
    """Their size."""


def taught_by(teacher: str) -> str:
    """`taught by big (its forward passes are in the budget, its training is not)`."""
    return f"taught by {teacher} (its forward passes are in the budget, its training is not)"


class StudyArm(Part):
    """One arm, as it was planned."""

    name: str
    """The arm's name."""
    edits: JsonObject
    """Its edits of the base model, by path."""
    tuned: JsonObject
    """Settings that tuning chose, by path."""
    matching: dict[str, int]
    """The edit that matched the parameters, by path."""
    cell: JsonObject = Field(default={}, exclude_if=operator.not_)
    """Its cell of a grid: the value of each factor, by path; `arm` is the arm that the grid varies."""
    parameters: Parameters
    """Parameters of the model."""
    parameters_embedding: Parameters
    """Parameters of the token and position embeddings."""
    parameters_head: Parameters = Field(default=0, exclude_if=operator.not_)
    """Parameters of an output table of its own; 0 if the token table is the head, and in older stores."""
    flops_per_token: FlopsPerToken
    """Training FLOPs per token, forward and backward."""
    tokens: Annotated[Tokens, Field(gt=0)]
    """Training tokens of one run."""
    steps: PositiveInt
    """Optimizer steps of one run."""
    tokens_before: Tokens = 0
    """Training tokens of the arm that it starts from; 0 for one that starts from scratch."""
    checkpoint: str | None = Field(default=None, exclude_if=is_none)
    """The checkpoint that it starts from, as the study names it; no count includes the checkpoint's training."""
    teacher: str | None = Field(default=None, exclude_if=is_none)
    """The arm or the checkpoint that it is distilled from; `flops_per_token` includes the teacher's forward pass, and
    no count includes the teacher's training."""
    kv_bytes_per_token: BytesPerToken | None
    """Declared cache bytes at the training context, divided by its tokens; null for an encoder."""
    seconds: Seconds | None
    """Planned training time of one run, if the budget is in seconds."""
    calibration: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the measurement of its step time in `calibration/`, if the budget is in seconds; arms with the same
    digest have the same step time."""
    step_time_error: Annotated[float | None, Unit("ln s")] = Field(default=None, exclude_if=is_none)
    """Standard error of ln(step time) over `step_time_processes` processes, relative to other arms; for ln of the ratio
    of two arms' times, the root of the sum of both squares. Null if unknown."""
    step_time_processes: int | None = Field(default=None, exclude_if=is_none)
    """Number of processes that measured it."""
    data: str
    """Digest of the arm's corpus, which differs between arms with different tokenizers."""
    cache_bytes: tuple[CacheBytes, ...]
    """Cache sizes at several contexts; empty for an encoder."""
    differs: dict[str, Percent]
    """Percentages by which tokens, FLOPs, parameters and, if planned, seconds exceed the baseline's."""
    identity: str
    """Digest of everything but the seeds that determines its losses."""
    identity_at_any_rate: str | None = Field(default=None, exclude_if=is_none)
    """The same digest without the learning rate; null in older stores."""
    runs: tuple[StudyRun, ...]
    """One run for each seed."""

    @property
    def parameters_non_embedding(self) -> int:
        """Without embeddings, and without the head, whether or not it is tied to them."""
        return self.parameters - self.parameters_embedding - self.parameters_head

    @property
    def flops(self) -> float:
        """Training FLOPs of one run."""
        return self.tokens * self.flops_per_token

    @property
    def length(self) -> Length:
        """Length of its training, including that of the arm it starts from."""
        size, continues = self.parameters_non_embedding, self.checkpoint is not None
        return Length.of(self.tokens, self.steps, self.tokens_before, size, continues)


def all_undertrained(arms: Iterable[StudyArm]) -> bool:
    """Whether no arm trains long enough for a verdict."""
    return all(arm.length.undertrained for arm in arms)
