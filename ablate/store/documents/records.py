"""`metrics.ndjson` and `probes.ndjson`: one line for each step that is logged, appended while training.

Both are cut back to the saved state when a run resumes. Step s is 1-based; what it says of the loss and of the weights
is from before its update.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator

from ablate.store.documents._document import Part, Seconds, Tokens, Unit


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Logged: TypeAlias = Annotated[float | None, BeforeValidator(_finite)]
"""Null where it was not finite."""


class MetricsRecord(Part):
    """A training step, or a validation, whose step may be 0: before training. Null where it was not finite."""

    step: int
    """How many steps were taken."""
    tokens: Tokens
    """Read so far."""
    seconds: Seconds
    """Spent on training steps so far."""
    loss: Annotated[Logged, Unit("nats per scored target")] = None
    """Training loss of the step."""
    lr: Logged = None
    """Learning rate; every training step has one."""
    grad_norm: Logged = None
    """Of the gradient, before clipping."""
    tokens_per_second: Annotated[Logged, Unit("tokens/s")] = None
    """Speed of the step."""
    validation_loss: Annotated[Logged, Unit("nats per scored target")] = None
    """Of all that is held out."""
    bits_per_byte: Annotated[Logged, Unit("bits/byte")] = None
    """The same per byte of text."""
    accuracy: Annotated[Logged, Unit("share")] = None
    """Share of targets that are the model's likeliest token, on a synthetic task."""


class ProbeRecord(Part):
    """One number that a probe read at one step."""

    step: int
    """1 is the initialisation."""
    probe: str
    """The probe's name."""
    layer: int | None
    """Null for what belongs to the whole model."""
    name: str
    """Which of the probe's numbers."""
    value: Logged
    """Null where it was not finite."""
