"""Arms and design of `study.json`: the plan of each arm, its runs, and the factorial design that has made them.

`Length` tells whether a run trains long enough for its loss to reflect the architecture.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple, Self

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

TOKENS_PER_PARAMETER = 5
"""Least tokens per parameter; about 20 are compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556)."""
STEPS = 500
LIMITS = f"{TOKENS_PER_PARAMETER} tokens per parameter or {STEPS} steps"


class Length(NamedTuple):
    """Length of a model's training, including that of the arm that it started from."""

    tokens: float
    steps: float
    parameters: int
    """Parameters without the tables of tokens and positions, and without the head, tied to them or not."""
    after_checkpoint: bool = False
    """Whether it started from a checkpoint, whose training is not counted."""

    @classmethod
    def of(cls, tokens: int, steps: int, tokens_before: int, parameters: int, after_checkpoint: bool = False) -> Self:
        """tokens_before: those of the arm that it starts from, counted in steps of this arm's size."""
        whole = tokens_before + tokens
        return cls(whole, steps * whole / tokens, parameters, after_checkpoint)

    @property
    def tokens_per_parameter(self) -> float:
        return self.tokens / max(self.parameters, 1)

    @property
    def undertrained(self) -> bool:
        return self.wanting > 1

    @property
    def shortfall(self) -> str:
        """`3.2 of 5 tokens per parameter and 212 of 500 steps`: what it lacks to train for long enough."""
        if self.after_checkpoint:
            return ""
        few = self.tokens_per_parameter < TOKENS_PER_PARAMETER
        return " and ".join(
            [f"{self.tokens_per_parameter:.2g} of {TOKENS_PER_PARAMETER} tokens per parameter"] * few
            + [f"{self.steps:,.0f} of {STEPS} steps"] * (self.steps < STEPS)
        )

    @property
    def wanting(self) -> float:
        """Least factor by which its training should be longer; at most 1 if it trains long enough."""
        if self.after_checkpoint:
            return 0.0
        few = self.steps < STEPS  # the budget may have made half a step less, which was rounded
        return max(TOKENS_PER_PARAMETER / self.tokens_per_parameter, STEPS / (self.steps - 0.5 * few))


def wanting(lengths: Iterable[Length]) -> float:
    """Least factor, rounded up to tenths, by which all should be longer for none to be undertrained."""
    return math.ceil(10 * max(length.wanting for length in lengths)) / 10


def undertrained(lengths: Mapping[str, Length]) -> str | None:
    """A sentence that names the arms that train too briefly and what the worst of them lacks; None if every arm trains
    long enough."""
    short = {name: length for name, length in lengths.items() if length.undertrained}
    if not short:
        return None
    who = "all arms" if len(short) == len(lengths) else ", ".join(short)
    worst = max(short.values(), key=lambda length: length.wanting).shortfall
    least = "" if len(short) == 1 else "as few as "
    return f"Undertrained: {who}, with {least}{worst}; these losses reflect early training."


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


class StudyEffect(Part):
    """An effect that a design estimates: the mean loss of half of its runs minus that of the other half."""

    factors: tuple[str, ...]
    """One factor for a main effect, two for their interaction."""
    aliases: tuple[tuple[str, ...], ...]
    """Other effects of at most two factors that the runs cannot tell from it. The estimate is the sum of both; their
    difference if one has one factor and the other two."""
    arms: tuple[str, ...]
    """The half of the runs whose mean counts positive: for a main effect, those with the factor."""
    identity: str
    """Digest of everything but the seeds that determines the losses of these runs."""
    other_identity: str
    """The same digest for the other half."""

    @property
    def name(self) -> str:
        """`gated × qk_norm`."""
        return " × ".join(self.factors)


class StudyDesign(Part):
    """A two-level design, whose runs are the arms of the study; its first run, the baseline, has no factor."""

    factors: tuple[str, ...]
    """Names of the factors."""
    resolution: int | None
    """3: main effects are aliased with interactions of two factors; 4: only these interactions, with each other; null
    if all combinations are trained."""
    correction: Literal["holm", "benjamini_hochberg"]
    """Correction of the effects' p-values for multiple tests."""
    effects: tuple[StudyEffect, ...]
    """Effects that are judged: every main effect, then the chosen interactions."""
