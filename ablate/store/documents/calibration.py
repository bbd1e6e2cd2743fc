"""`calibration/<digest>.json`: the measured time of a training step, for budgets in seconds."""

from __future__ import annotations

from typing import Annotated

from ablate.store.documents._document import Document, Environment, JsonObject, Quartiles, Unit
from ablate.store.documents.run import RunNumerics


class CalibrationDocument(Document):
    """A stored time is never measured again, because the number of steps of runs follows from it."""

    digest: str
    """Digest of what was measured: model, training, numerics, device and workers."""
    model: JsonObject
    """The resolved model."""
    train: JsonObject
    """The training settings that affect the time of a step."""
    numerics: RunNumerics
    """Device and precision."""
    device: str
    """Name of the processor or the GPU."""
    workers: int
    """Concurrent processes."""
    seconds_per_step: Annotated[Quartiles, Unit("s")]
    """Over all steps of all processes."""
    steps: int
    """Number of steps timed."""
    environment: Environment
    """Software and machine."""
    measured: str
    """Time of the measurement (ISO 8601)."""
