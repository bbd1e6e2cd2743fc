"""`calibration/<digest>.json`: the measured time of a training step, for budgets in seconds."""

from __future__ import annotations

from typing import Annotated

from ablate.store.documents._document import Document, Environment, JsonObject, Quartiles, Seconds, Unit
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
    """Over all turns of all processes."""
    steps: int
    """Number of turns timed, of a step or more each."""
    seconds: Seconds | None = None
    """Time that a step is taken to last; in older documents the median of `seconds_per_step`. Of a model that was
    measured later than others of its study, the time of one of them times the ratio of both."""
    error: Annotated[float | None, Unit("ln s")] = None
    """Standard error of ln(`seconds`) against the models that it was measured with, over processes: of ln of the ratio
    of two, the root of the sum of both squares. Null in older documents."""
    processes: int | None = None
    """Processes that measured; null in older documents."""
    environment: Environment
    """Software and machine."""
    measured: str
    """Time of the measurement (ISO 8601)."""

    @property
    def step_seconds(self) -> float:
        """Time that a step is taken to last."""
        return self.seconds_per_step.median if self.seconds is None else self.seconds
