"""`run.json`, the identity of a run, and the documents of its progress: its logs and its claim.

`run.json` has everything that can change a run's numbers, and is written first. `imports/<name>.json` names a model
that was trained elsewhere, and the run that represents it.

`metrics.ndjson` and `probes.ndjson` have a line for each logged step, and are cut back to the checkpoint when a run
resumes; `merged.ndjson` is a log, too. Steps are 1-based; loss and weights of a step are those before its update.

`claim/<token>.json` has one line on the process that works on a run, rewritten at every heartbeat.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from store.documents._document import Document, JsonObject, Part, Seconds, Time, Tokens, Unit, is_none
from store.documents.data import HeldOutPart


class RunData(Part):
    """Data that a run is trained on."""

    digest: str
    """Name of the corpus's folder in `data/`."""


class RunNumerics(Part):
    """Device and number formats of a run."""

    device: str
    """`cpu` or `cuda`."""
    dtype: str
    """`float32`, or `bfloat16` for autocast over float32 weights."""
    matmul: str
    """torch's precision of float32 matrix products: `highest`, `high` or `medium`."""
    gpu: str | None = Field(default=None, exclude_if=is_none)
    """The GPU's name, cuDNN's version, and `FlashAttention-3` and `flash-linear-attention` if they are used. Absent on
    a CPU, and if the run was planned on a machine without the GPU."""


class RunProbes(Part):
    """Probes that are recorded during training."""

    every: float
    """Interval between probes, as a share of the steps; the first and the last step are always probed."""
    which: tuple[str, ...]
    """Names of the probes."""


class RunStart(Part):
    """Weights that a run starts from."""

    run: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the run that trained them."""
    checkpoint: str | None = Field(default=None, exclude_if=is_none)
    """Digest of their checkpoint in `checkpoints/`, if no run trained them."""
    pooling: Literal["mean", "first", "random"]
    """Method of merging several key-value heads into one."""
    growth: Literal["stack", "duplicate", "width", "thin", "truncate"] | None = Field(default=None, exclude_if=is_none)
    """Method of initialising a deeper, shallower or wider model."""
    batches_before: int = 0
    """Number of batches of this run's size that `run` has read: this run continues in the text after them."""


class RunTeacher(Part):
    """The teacher of a distillation: its predictions are targets besides the text."""

    run: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the run that trained it."""
    checkpoint: str | None = Field(default=None, exclude_if=is_none)
    """Digest of its checkpoint in `checkpoints/`, if no run trained it."""
    temperature: float
    """Divisor of the logits of both models."""
    weight: float
    """The teacher's share of the loss."""
    top_k: int | None = Field(default=None, exclude_if=is_none)
    """Number of the teacher's likeliest tokens that count; absent if all count."""


class RunDocument(Document):
    """One training run. Probes are part of the digest: a stored run without them has no probe data to show."""

    digest: str
    """Digest of all other fields, with the model resolved; the name of the run's folder."""
    seed: int
    """Seed of the initial values and the order of the data."""
    model: JsonObject
    """The model's spec; `zoo.parse` reads it."""
    train: JsonObject
    """Training settings; `ablate.training.spec.TrainSpec` reads them."""
    steps: int
    """Optimizer steps."""
    data: RunData
    """Data that it is trained on."""
    numerics: RunNumerics
    """Device and number formats of its computation."""
    probes: RunProbes | None = Field(default=None, exclude_if=is_none)
    """Recorded probes, if any."""
    start: RunStart | None = Field(default=None, exclude_if=is_none)
    """Origin of its initial weights, if not the seed."""
    imported: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the checkpoint of a model that was trained elsewhere. Then `data` is the text of its loss, and `steps`
    is 0."""
    conventions: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the files in `published/`: the tokenizer of an imported model as published, which encodes tasks for it.
    Absent if transformers cannot read them, and in runs of versions before December 2026."""
    begins: tuple[int, ...] = Field(default=(), exclude_if=lambda tokens: not tokens)
    """Tokens that an imported model reads before every window of held-out text, in place of the window's first one: its
    BOS. Empty in runs of versions before December 2026."""
    teacher: RunTeacher | None = Field(default=None, exclude_if=is_none)
    """Model that it is distilled from, if any."""
    plugins: dict[str, str] | None = Field(default=None, exclude_if=is_none)
    """Digests of the files of plug-ins in model, training and data, by `axis.name`; for an installed plug-in, after the
    name and version of its distribution."""
    reads: HeldOutPart = Field(default="test", exclude_if=lambda part: part == "test")
    """The held-out part of the final loss and of evaluations: `tuning` in trials of `tune`, `judging` in those of a
    search, else `test`."""

    @property
    def predicts_next_token(self) -> bool:
        """Whether its loss compares with those of n-gram models of its text."""
        objective = self.train.get("objective")
        return not isinstance(objective, dict) or objective["kind"] == "next_token"


class ImportDocument(Document):
    """An imported model. Its scores are the evaluations of its run."""

    name: str
    """Name that reports show, and that commands accept in place of a digest."""
    folder: str
    """Its folder at the time of the import."""
    run: str
    """Digest of its run: the model, and the text and context of its loss."""
    measure: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the measurement request; absent if nothing was measured."""
    created: Time
    """Time of the import (ISO 8601)."""


Logged: TypeAlias = Annotated[
    float | None, BeforeValidator(lambda n: None if isinstance(n, float) and not math.isfinite(n) else n)
]
"""A number; null if it was not finite."""


class MetricsRecord(Part):
    """A training step, or a validation (at step 0 before training). Numbers that were not finite are null."""

    step: int
    """Steps taken so far."""
    tokens: Tokens
    """Training tokens so far."""
    seconds: Seconds
    """Time spent on training steps so far."""
    loss: Annotated[Logged, Unit("nats per scored target")] = None
    """Training loss of the step."""
    lr: Logged = None
    """Learning rate; every training step has one."""
    grad_norm: Logged = None
    """Norm of the gradient, before clipping."""
    tokens_per_second: Annotated[Logged, Unit("tokens/s")] = None
    """Speed of the step."""
    validation_loss: Annotated[Logged, Unit("nats per scored target")] = None
    """Loss on one row in eight of the judging part, at least 32 rows. The `loss` of `result.json` is over all of the
    test part."""
    bits_per_byte: Annotated[Logged, Unit("bits/byte")] = None
    """The validation loss in bits per byte of text."""
    accuracy: Annotated[Logged, Unit("share")] = None
    """Share of targets that are the model's likeliest token, on a synthetic task."""


class ProbeRecord(Part):
    """One number that a probe read at one step."""

    step: int
    """The probed step; step 1 shows the initial weights."""
    probe: str
    """The probe's name."""
    layer: int | None
    """The layer; null for numbers of the whole model."""
    name: str
    """Name of the number within the probe."""
    value: Logged
    """The number; null if it was not finite."""


class MergedRecord(Part):
    """A run that was trained in another store and came from an archive. Append-only."""

    at: Time
    """Time of the merge (ISO 8601)."""
    archive: str
    """SHA-256 of the archive."""
    run: str
    """Digest of the run."""
    finished: Time
    """End of its training, from its result; differs if the same run is trained again here."""
    weights: bool
    """Whether the archive had its model."""


class Count(Part):
    """Progress of a part of a run: `tasks 120/400`."""

    what: str
    """Name of the units counted: an evaluation's items, or the parts of a measurement."""
    done: Annotated[int, Field(ge=0)]
    """Number done, of `total`."""
    total: Annotated[int, Field(ge=1)]
    """Total number."""

    def __str__(self) -> str:
        return f"{self.what} {self.done}/{self.total}"


class ClaimRecord(Part):
    """The process with exclusive write access to the folder around `claim/`, as long as its heartbeat goes on."""

    token: str
    """Unique identifier of the claim."""
    host: tuple[str, str, str]
    """The machine, its boot id, and its PID namespace."""
    pid: Annotated[int, Field(ge=1)]
    """Process id."""
    started: str | None
    """Start time of that process, so that a later process with the same id is not taken for it; null if unknown."""
    beat_seconds: Annotated[Seconds, Field(le=60)]
    """Interval between heartbeats."""
    beat: int
    """Number of heartbeats so far."""
    count: Count | None = None
    """Progress of its measurement or evaluation."""
