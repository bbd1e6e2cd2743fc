"""`calibration/<digest>.json`: the measured time of a training step, for budgets in seconds."""

from __future__ import annotations

from typing import Annotated

from store.documents._document import Document, Environment, JsonObject, Quartiles, Seconds, Time, Unit
from store.documents.run import RunNumerics


class CalibrationDocument(Document):
    """A step time. It is never measured again once stored, because runs derive their number of steps from it."""

    digest: str
    """Digest of the measured setting: model, training, numerics, device and workers."""
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
    """Measured step times, over all turns of all processes."""
    steps: int
    """Number of turns timed, each of one step or more."""
    seconds: Seconds | None = None
    """Step time that budgets use; null in older documents, which use the median of `seconds_per_step`. For a model
    measured later than others of its study: the time of one of them times the measured ratio of the two."""
    error: Annotated[float | None, Unit("ln s")] = None
    """Standard error of ln(`seconds`) over processes, relative to the models measured with it; for ln of the ratio of
    two, the root of the sum of both squares. Null in older documents."""
    processes: int | None = None
    """Number of measuring processes; null in older documents."""
    environment: Environment
    """Software and machine."""
    measured: Time
    """Time of the measurement (ISO 8601)."""

    @property
    def step_seconds(self) -> float:
        """Step time that budgets use."""
        return self.seconds_per_step.median if self.seconds is None else self.seconds
