"""`result.json`: what training ended with. Written last and atomically: a run with a result is done."""

from __future__ import annotations

from typing import Annotated, Literal

from ablate.store.documents._document import (
    BitsPerByte,
    Bytes,
    Document,
    Environment,
    Flops,
    FlopsPerToken,
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
    """Steps at which it was above five times the median."""


class ResultDocument(Document):
    """The training result. Losses are of held-out text or examples unless they say otherwise."""

    digest: str
    """The run's."""
    status: Literal["finished", "diverged"]
    """A run that diverged has a reason, and none of the final numbers."""
    reason: str | None
    """Why it is called diverged."""
    steps: int
    """Optimizer steps taken."""
    tokens: Tokens
    """Read in training."""
    train_seconds: Seconds
    """Training steps alone: neither validation, logging nor saving."""
    wall_seconds: Seconds
    """All of it, over all processes that worked on the run."""
    loss: Nats | None
    """Validation loss after the last step. A scored target is every token, unless the objective says otherwise."""
    bits_per_byte: BitsPerByte | None
    """The same per byte of text; null for synthetic tasks."""
    accuracy: Annotated[float, Unit("share")] | None
    """Share of targets that are the model's likeliest token; null for text."""
    floor: Nats | None
    """The least loss possible on what validates, where it is known."""
    start_loss: Nats | None
    """Training loss at the first step."""
    train_loss: Nats | None
    """Mean training loss over the last tenth of the steps."""
    tokens_per_second: Annotated[Quartiles, Unit("tokens/s")]
    """Training speed over steps, without the first ones."""
    loss_spikes: int | None
    """Steps at which the training loss spiked (`ablate/training/spikes.py`); null for a run of at most 32 steps."""
    loss_spike_steps: tuple[int, ...]
    """The first hundred of them."""
    grad_norm: GradNorm
    """Of the gradient."""
    mfu: Annotated[float, Unit("share")] | None
    """Model FLOP utilisation: the model's own arithmetic over what matrix products reach on this machine."""
    matmul_flops_per_second: Annotated[float, Unit("FLOP/s")]
    """What matrix products reach on this machine."""
    peak_memory_bytes: Bytes
    """The most memory that training took."""
    peak_memory_source: str
    """What was measured: `VmHWM` of the process, or what CUDA's allocator gave out."""
    parameters: int
    """Of the model."""
    parameters_embedding: int
    """Of its tables of tokens and positions."""
    flops_per_token: FlopsPerToken
    """Of a training step, forward and backward."""
    flops: Flops
    """Of the whole run."""
    environment: Environment
    """Where it was trained."""
    started: str
    """When the last process that worked on it began (ISO 8601)."""
    finished: str
    """When it ended (ISO 8601)."""
