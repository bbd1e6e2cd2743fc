"""`result.json`: what training ended with. Written last and atomically: a run with a result is done."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

from ablate.store.documents._document import (
    BitsPerByte,
    Bytes,
    Document,
    Environment,
    Flops,
    FlopsPerToken,
    GpuState,
    Nats,
    Part,
    Quartiles,
    Seconds,
    Tokens,
    Unit,
)


class GradNorm(Part):
    """The gradient's norm before clipping, over the steps after warm-up. Norms that were not finite are left out."""

    median: float | None
    """Half of the steps have less."""
    max: float | None
    """The largest."""
    spikes: int
    """Steps at which the norm exceeded five times the median."""


class ItemLoss(Part):
    """The loss of one document of the held-out part that the final loss is of, or of one example of a synthetic task.

    A line of `losses.ndjson`, which is there for every run that finished. Σ `nats` / Σ `targets` is the `loss` of
    `result.json`. Where only some windows of a part are read, so is only some of a document.
    """

    item: int
    """Its number in the held-out part, the same for all arms and tokenizers."""
    nats: Annotated[float, Unit("nats")]
    """Sum over its scored targets."""
    targets: int
    """Number of its scored targets."""
    bytes: Bytes | None
    """Bytes of text that they stand for; null for synthetic tasks."""


class LogSums(Part):
    """SHA-256 of a run's logs at its end; null where there is none."""

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
    """The run's."""
    status: Ended
    """A run that diverged has a reason and no final numbers."""
    reason: str | None
    """Why the run counts as diverged."""
    steps: int
    """Optimizer steps taken."""
    tokens: Tokens
    """Read in training."""
    attention: str | None = None
    """Backends of softmax attention that training steps took (`zoo/attending`), and `flash-linear-attention` with its
    version where its kernels computed linear mixers; several with commas, null without."""
    microbatch: int | None = None
    """Rows of a batch at a time, whose gradients were accumulated; null for all of them."""
    devices: int = 1
    """Processes that shared its batches, on a device each; speed is of all of them together, memory of the first."""
    sharding: Literal["fsdp2"] | None = None
    """Method that sharded weights, gradients and the optimizer's state over them; null where each had whole ones."""
    waiting: Annotated[float | None, Unit("share")] = None
    """Share of the training in which its process was ready and had no processor, as others did; null where the system
    does not count it. The last process's, where several worked on the run."""
    beside: int = 0
    """Other runs that might share its GPU at the same time (`--workers-per-gpu`)."""
    train_seconds: Seconds
    """Training steps only, without validation, logging and saving."""
    wall_seconds: Seconds
    """Total, over all processes that worked on the run."""
    loss: Nats | None
    """After the last step, on the held-out part that `run.json` names: the test part, except in trials of `tune` and of
    searches. Every token is a scored target, unless the objective says otherwise."""
    bits_per_byte: BitsPerByte | None
    """The same per byte of text; null for synthetic tasks."""
    accuracy: Annotated[float, Unit("share")] | None
    """Share of targets that are the model's likeliest token; null for text."""
    floor: Nats | None
    """The lowest possible loss on the same data, where it is known."""
    judging_loss: Nats | None
    """After the last step, on the judging part: `seeds: auto` decides by it where to add seeds. Null for trials."""
    judging_bits_per_byte: BitsPerByte | None
    """The same per byte of text; null for synthetic tasks."""
    judging_accuracy: Annotated[float, Unit("share")] | None = None
    """Share of targets there that are the model's likeliest token; null for text."""
    start_loss: Nats | None
    """Training loss at the first step."""
    train_loss: Nats | None
    """Mean training loss over the last tenth of the steps."""
    tokens_per_second: Annotated[Quartiles | None, Unit("tokens/s")]
    """Training speed per step, without the first steps; null for an imported model."""
    loss_spikes: int | None
    """Steps at which the training loss spiked (`ablate/training/spikes.py`); null for a run of at most 32 steps."""
    loss_spike_steps: tuple[int, ...]
    """The first hundred such steps."""
    grad_norm: GradNorm
    """Norm of the gradient over training."""
    mfu: Annotated[float, Unit("share")] | None
    """Model FLOP utilisation: FLOPs per second of training over `matmul_flops_per_second`. Null where runs shared
    the GPU: they slow that measurement down, too."""
    mfu_published: Annotated[float | None, Unit("share")] = None
    """The same over `published_flops_per_second`."""
    published_flops_per_second: Annotated[float | None, Unit("FLOP/s")] = None
    """Dense matrix-product speed in the GPU's data sheet, for the type that was trained in; null for a processor, and
    for a GPU whose data sheet is not in `evals/costs/devices`."""
    matmul_flops_per_second: Annotated[float, Unit("FLOP/s")]
    """Measured matrix-product speed of this machine."""
    peak_memory_bytes: Bytes
    """Peak memory of training; for an imported model, of reading the held-out text."""
    peak_memory_reserved_bytes: Bytes | None = None
    """The most that CUDA's allocator took from the GPU, holes between tensors included: what other programs could not
    have. Null for a processor."""
    peak_memory_source: str
    """Quantity that was measured: `VmHWM` of the process, or memory allocated by CUDA."""
    parameters: int
    """Parameters of the model."""
    parameters_embedding: int
    """Parameters of the token and position embeddings."""
    flops_per_token: FlopsPerToken
    """Training FLOPs per token, forward and backward."""
    flops: Flops
    """Training FLOPs of the whole run; 0 for an imported model, whose training is not known."""
    sums: LogSums = LogSums()
    """Checksums of what this rests on."""
    gpu: GpuState | None = None
    """Clock, power and heat of the GPU in training; null for a processor, and where `nvidia-ml-py` is not installed."""
    environment: Environment
    """Software and machine of the training."""
    started: str
    """Start of the last process that worked on the run (ISO 8601)."""
    finished: str
    """End of the run (ISO 8601)."""

    @property
    def training_speed(self) -> float | None:
        """Median tokens per second; None for an imported model."""
        return self.tokens_per_second.median if self.tokens_per_second else None
