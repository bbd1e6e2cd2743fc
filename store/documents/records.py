"""Lines of `metrics.ndjson` and `probes.ndjson`, for each logged step of a run, and of `merged.ndjson`.

The first two are cut back to the checkpoint when a run resumes. Steps are 1-based; loss and weights of a step are those
before its update.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

from store.documents._document import Part, Seconds, Time, Tokens, Unit

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
