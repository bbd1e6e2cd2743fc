"""`result.json`, the outcome of training, and `evals-<request>.json`, results of one evaluation request on one run.

`result.json` is written last and atomically: a run with a result is done. `evals-<request>.samples.ndjson` has one line
for each item of an evaluation and filter, for paired tests.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field, JsonValue

from store.documents._document import (
    BitsPerByte,
    Bytes,
    Document,
    Environment,
    Flops,
    FlopsPerToken,
    GpuState,
    JsonObject,
    JsonScalar,
    Nats,
    Parameters,
    Part,
    Quartiles,
    Seconds,
    Time,
    Tokens,
    Unit,
    is_none,
)


class GradNorm(Part):
    """The gradient's norm before clipping, over the steps after warm-up. Norms that were not finite are left out."""

    median: float | None
    """Median over steps."""
    max: float | None
    """Maximum over steps."""
    spikes: int
    """Steps at which the norm exceeded five times the median."""


class ItemLoss(Part):
    """Loss of one document of the held-out part behind the final loss, or of one example of a synthetic task.

    A line of `losses.ndjson`, which every finished run has. Σ `nats` / Σ `targets` is the `loss` of `result.json`. If
    only some windows of the part are read, documents may be read in part.
    """

    item: int
    """Its number in the held-out part, the same for all arms and tokenizers."""
    nats: Annotated[float, Unit("nats")]
    """Sum over its scored targets."""
    targets: int
    """Number of its scored targets."""
    bytes: Bytes | None
    """Bytes of text of these targets; null for synthetic tasks."""


class SharedSteps(Part):
    """First steps of a run that another run took, which is the same up to there."""

    run: str
    """Digest of the other run."""
    steps: int
    """Number of shared steps."""


class LogSums(Part):
    """SHA-256 of a run's logs at its end; null for a log that it does not have."""

    metrics: str | None = None
    """Digest of `metrics.ndjson`."""
    probes: str | None = None
    """Digest of `probes.ndjson`."""
    losses: str | None = None
    """Digest of `losses.ndjson`."""


Ended: TypeAlias = Literal["finished", "diverged"]


class Outcome(NamedTuple):
    """Status and final loss of a result."""

    status: Ended
    loss: float | None


class ResultDocument(Document):
    """The training result. Losses are on held-out data unless stated otherwise."""

    digest: str
    """Digest of the run."""
    status: Ended
    """A run that diverged has a reason and no final numbers."""
    reason: str | None
    """Why the run counts as diverged."""
    steps: int
    """Optimizer steps taken."""
    shared: SharedSteps | None = Field(default=None, exclude_if=is_none)
    """Steps that another run took, with its seconds and metrics; absent if this run took all by itself."""
    tokens: Tokens
    """Training tokens."""
    attention: str | None = None
    """Backends of softmax attention in training steps (`zoo/attending`), and `flash-linear-attention` with its version
    if its kernels computed linear mixers; separated by commas, null if there are none."""
    microbatch: int | None = None
    """Rows per micro-batch of gradient accumulation; null if batches were not split."""
    devices: int = 1
    """Data-parallel processes, with a device each; speed is of all of them together, memory of the first."""
    sharding: Literal["fsdp2"] | None = None
    """Method that sharded weights, gradients and the optimizer's state over them; null if each held all of these."""
    waiting: Annotated[float | None, Unit("share")] = None
    """Share of the training thread's ready time in which other work held the processor; null if the system does not
    report it. If several processes worked on the run, that of the last."""
    beside: int = 0
    """Other runs that might share its GPU at the same time (`--workers-per-gpu`)."""
    train_seconds: Seconds
    """Time of training steps only, without validation, logging and saving."""
    wall_seconds: Seconds
    """Total wall time, over all processes that worked on the run."""
    loss: Nats | None
    """Loss after the last step, on the held-out part that `run.json` names: the test part, except in trials of `tune`
    and of searches. Every token is a scored target, unless the objective says otherwise."""
    bits_per_byte: BitsPerByte | None
    """`loss` in bits per byte of text; null for synthetic tasks."""
    accuracy: Annotated[float, Unit("share")] | None
    """Share of targets that are the model's likeliest token; null for text."""
    floor: Nats | None
    """The lowest possible loss on the same data; null if unknown."""
    judging_loss: Nats | None
    """Loss after the last step on the judging part, by which `seeds: auto` decides where to add seeds. Null for
    trials."""
    judging_bits_per_byte: BitsPerByte | None
    """`judging_loss` in bits per byte of text; null for synthetic tasks."""
    judging_accuracy: Annotated[float, Unit("share")] | None = None
    """Share of targets in the judging part that are the model's likeliest token; null for text."""
    start_loss: Nats | None
    """Training loss at the first step."""
    train_loss: Nats | None
    """Mean training loss over the last tenth of the steps."""
    tokens_per_second: Annotated[Quartiles | None, Unit("tokens/s")]
    """Training speed per step, without the first steps; null for an imported model."""
    loss_spikes: int | None
    """Steps at which the training loss spiked (`ablate/training/divergence.py`); null for a run of at most 32 steps."""
    loss_spike_steps: tuple[int, ...]
    """The first hundred such steps."""
    grad_norm: GradNorm
    """Norm of the gradient over training."""
    mfu: Annotated[float, Unit("share")] | None
    """Model FLOP utilisation: training FLOPs per second / `matmul_flops_per_second`. Null if runs shared the GPU, which
    slows that measurement down, too."""
    mfu_published: Annotated[float | None, Unit("share")] = None
    """Training FLOPs per second / `published_flops_per_second`."""
    published_flops_per_second: Annotated[float | None, Unit("FLOP/s")] = None
    """Dense matrix-product speed in the GPU's data sheet, for the training dtype; null on a CPU, and for a GPU whose
    data sheet is not in `evals/costs/devices`."""
    matmul_flops_per_second: Annotated[float, Unit("FLOP/s")]
    """Measured matrix-product speed of the machine."""
    peak_memory_bytes: Bytes
    """Peak memory of training; for an imported model, of reading the held-out text."""
    peak_memory_reserved_bytes: Bytes | None = None
    """Peak memory that CUDA's allocator reserved, fragmentation included, and kept from other programs. Null on a
    CPU."""
    peak_memory_source: str
    """Quantity that was measured: `VmHWM` of the process, or memory allocated by CUDA."""
    parameters: Parameters
    """Parameters of the model."""
    parameters_embedding: Parameters
    """Parameters of the token and position embeddings."""
    flops_per_token: FlopsPerToken
    """Training FLOPs per token, forward and backward."""
    flops: Flops
    """Training FLOPs of the whole run; 0 for an imported model, whose training is not known."""
    sums: LogSums = LogSums()
    """Checksums of the run's logs."""
    gpu: GpuState | None = None
    """Clock, power and temperature of the GPU in training; null on a CPU, and without `nvidia-ml-py`."""
    environment: Environment
    """Software and machine of the training."""
    started: Time
    """Start of the last process that worked on the run (ISO 8601)."""
    finished: Time
    """End of the run (ISO 8601)."""

    @property
    def training_speed(self) -> float | None:
        """Median tokens per second; None for an imported model."""
        return self.tokens_per_second.median if self.tokens_per_second else None


class Score(Part):
    """One metric of one task. Numbers that are not finite are null."""

    value: float | None
    """The metric, over all items."""
    stderr: float | None
    """Standard error over items, or over clusters of them."""
    higher_is_better: bool | None
    """Direction of the metric: whether higher is better; null if unknown."""
    chance: float | None
    """Score of guessing; null if guessing has no meaning."""
    items: int
    """Number of items."""


class TaskGroup(Part):
    """Tasks whose scores are averaged."""

    tasks: tuple[str, ...]
    """Tasks whose mean is the group's score."""
    missing: tuple[str, ...]
    """Tasks that were skipped."""
    by_size: tuple[str, ...]
    """Metrics averaged over items rather than over tasks."""


class Section(Part):
    """Findings of one evaluation besides its scores: a table, and facts about the whole table."""

    about: dict[str, JsonScalar] = Field(default={})
    """Settings and facts, such as the training context."""
    rows: tuple[JsonObject, ...]
    """Records with the same keys. A record that could not be computed has a `reason`."""


class EvalsDocument(Document):
    """Scores by task and metric, and further findings of the evaluations."""

    request: JsonObject
    """The evaluation spec that this answers."""
    scores: dict[str, dict[str, Score]]
    """Scores by task, or group of tasks, and metric."""
    groups: dict[str, TaskGroup] = Field(default={})
    """Groups of tasks by name."""
    skipped: dict[str, str] = Field(default={})
    """Tasks that could not be evaluated, with the reason. The next command that requests them tries again."""
    sections: dict[str, Section] = Field(default={})
    """Sections by the name of the evaluation."""
    seconds: Seconds | None = None
    """Wall time of the evaluation."""
    samples_sha256: str | None = None
    """SHA-256 of `evals-<request>.samples.ndjson`."""


class SampleRecord(Part):
    """One item: its identity, the model's answer, and the answer's scores."""

    task: str
    """The item's task."""
    document: int | None = None
    """The held-out document that the item comes from, if several items may share one; otherwise null."""
    doc_id: int
    """The item's number."""
    doc_hash: str
    """Hash that, with `doc_id`, identifies the item across runs."""
    filter: str = "none"
    """lm-eval's filter of the answers."""
    target: JsonValue = ""
    """The right answer."""
    filtered_resps: JsonValue = Field(default=[])
    """The model's answer, after the filter."""
    metrics: dict[str, JsonValue]
    """Scores by metric: a number, lm-eval's log-likelihood and size, or a `sum` and its `weight`."""
