"""`calibration/<digest>.json`: the measured time of a training step, for budgets in seconds."""

from __future__ import annotations

from typing import Annotated

from ablate.store.documents._document import Document, Environment, JsonObject, Quartiles, Unit
from ablate.store.documents.run import RunNumerics


class CalibrationDocument(Document):
    """A time that is stored is never measured again, since the steps of runs follow from it."""

    digest: str
    """Digest of what was measured: model, training, numerics, device and workers."""
    model: JsonObject
    """The resolved model."""
    train: JsonObject
    """The settings of training that change the time of a step."""
    numerics: RunNumerics
    """How it was computed."""
    device: str
    """Name of the processor or the GPU."""
    workers: int
    """Processes that worked at once."""
    seconds_per_step: Annotated[Quartiles, Unit("s")]
    """Over all steps of all processes."""
    steps: int
    """How many steps were timed."""
    environment: Environment
    """Where it was measured."""
    measured: str
    """When (ISO 8601)."""
