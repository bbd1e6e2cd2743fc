"""`studies/<name>-<scale>/study.json`: what a study asked for: arms, budgets, and the digests of their runs."""

from __future__ import annotations

from typing import Annotated, Literal

from ablate.store.documents._document import (
    Bytes,
    BytesPerToken,
    Document,
    Flops,
    FlopsPerToken,
    JsonObject,
    NatsPerToken,
    Part,
    Percent,
    Seconds,
    Tokens,
    Unit,
)


class ParameterBudget(Part):
    """The setting that brings every arm to the baseline's parameters."""

    knob: str
    """Its path."""
    step: int
    """Legal values are multiples of this."""
    count: str
    """`total` or `non_embedding` parameters."""


class SpentBudget(Part):
    """What every arm may spend on training one run: one of flops, tokens and seconds."""

    flops: Flops | None = None
    """Forward and backward."""
    tokens: Tokens | None = None
    """Read in training."""
    seconds: Seconds | None = None
    """Of training steps on this device."""
    parameters: ParameterBudget | None = None
    """How parameters are matched, where they are."""


class StudyObjective(Part):
    """What is predicted."""

    kind: str
    """The objective's name."""
    counts: str
    """What the loss is a mean over, in words."""


class StudyRun(Part):
    """A run of an arm."""

    digest: str
    """The name of its folder."""
    seed: int
    """Its seed."""


class CacheBytes(Part):
    """Declared bytes of a cache, for one row."""

    context: Tokens
    """Tokens that it holds."""
    bytes: Bytes
    """What they take."""


class StudyArm(Part):
    """One arm, as it was planned."""

    name: str
    """The arm's."""
    edits: JsonObject
    """Its edits of the base model, by path."""
    tuned: JsonObject
    """Settings that tuning chose, by path."""
    matching: dict[str, int]
    """The edit that matched the parameters, by path."""
    parameters: int
    """Of the model."""
    parameters_embedding: int
    """Of its tables of tokens and positions."""
    flops_per_token: FlopsPerToken
    """Of a training step, forward and backward."""
    tokens: Tokens
    """Read by one run in training."""
    steps: int
    """Optimizer steps of one run."""
    kv_bytes_per_token: BytesPerToken | None
    """Declared cache bytes at the training context, over its tokens; null for an encoder, which has no cache."""
    seconds: Seconds | None
    """Planned training time of one run, where the budget is in seconds."""
    data: str
    """Digest of the arm's corpus: its own where it has its own tokenizer."""
    cache_bytes: tuple[CacheBytes, ...]
    """At several contexts; none for an encoder."""
    differs: dict[str, Percent]
    """By how much tokens, FLOPs, parameters and, where they are planned, seconds exceed the baseline's."""
    runs: tuple[StudyRun, ...]
    """One for each seed."""

    @property
    def flops(self) -> float:
        """Training FLOPs of one run."""
        return self.tokens * self.flops_per_token


class StudyLook(Part):
    """A number of seeds at which a study that adds seeds in rounds judges its arms."""

    seeds: int
    """That number."""
    alpha: float
    """The level at which arms are judged there."""


class StudyTrial(Part):
    """Settings that tuning tried."""

    settings: JsonObject
    """By path."""
    loss: NatsPerToken | None
    """Mean over the tuning seeds; null where one diverged."""
    runs: tuple[str, ...]
    """Digests of its runs."""


class StudyTuning(Part):
    """How one arm was tuned."""

    arm: str
    """The arm's name."""
    chosen: JsonObject
    """The best settings, by path."""
    edges: tuple[str, ...]
    """Settings whose best value is the last one tried in a direction."""
    fraction: Annotated[float, Unit("share")]
    """Of the budget that each trial had."""
    trials: tuple[StudyTrial, ...]
    """All that was tried."""


class StudySize(Part):
    """A study at one size of its ladder."""

    name: str
    """The size's."""
    arms: tuple[StudyArm, ...]
    """Its arms."""
    tuning: tuple[StudyTuning, ...]
    """How they were tuned."""


class StudyDocument(Document):
    """A study at one scale. The first arm is the baseline."""

    name: str
    """The study's."""
    scale: str
    """`cpu`, `gpu` …"""
    path: str | None
    """The file that was run: another file of the same name is refused for as long as that one stands. Null for a study
    that came from Python."""
    question: str
    """As the file asks it."""
    citation: str | None
    """Where the claim under test comes from."""
    source: str
    """The file's text."""
    baseline: str
    """Name of the arm that others are compared with."""
    budget: SpentBudget
    """What every arm may spend."""
    matched: str
    """What is the same in every arm: `flops`, `tokens` or `seconds`, alone or with parameters."""
    margin: NatsPerToken | None
    """A difference too small to matter."""
    per: Literal["token", "target", "byte"]
    """What losses are compared per: `target` where an objective scores some tokens only, `byte` where arms have
    their own tokenizers."""
    objective: StudyObjective | None
    """What is predicted, where that is not every next token."""
    conventions: tuple[str, ...]
    """What a context is for arms that are not causal decoders, in words."""
    created: str
    """When it was planned (ISO 8601)."""
    arms: tuple[StudyArm, ...]
    """Those of the largest size, where there is a ladder."""
    measure: str | None
    """Digest of the measurement request."""
    evals: str | None
    """Digest of the evaluation request."""
    looks: tuple[StudyLook, ...]
    """None where the number of seeds is fixed."""
    judged: tuple[int, ...] = ()
    """Numbers of seeds at which the study was judged before, but for planned looks."""
    tuning: tuple[StudyTuning, ...]
    """How the arms were tuned."""
    ladder: tuple[StudySize, ...]
    """Every size, the smallest first; none without a ladder."""

    @property
    def baseline_arm(self) -> StudyArm:
        """The arm that others are compared with."""
        return next(arm for arm in self.arms if arm.name == self.baseline)
