"""Where runs are carried out: a store, an engine, and whom it tells how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.data import DataError, prepare
from ablate.errors import ArgumentError
from ablate.machine.numerics import enforce, unused_gpu
from ablate.planning.adoption import adopt
from ablate.planning.plan import Plan, identifying
from ablate.planning.planner import Planner
from ablate.running.calibration import Calibration
from ablate.running.engines import Engine, Options, load
from ablate.running.progress import Progress, Wanted, open_progress, teller
from ablate.running.request import Request
from ablate.store import Store
from ablate.store.documents import RunDocument
from ablate.study.study import Study
from ablate.training.execution import Execution
from zoo.errors import SpecError
from zoo.explain import checked


@dataclass(frozen=True)
class Workshop:
    """`progress` is how the caller wants to follow runs."""

    store: Store
    engine: Engine
    execution: Execution
    progress: Wanted
    trackers: tuple[str, ...] = ()
    """Names of what also shows the runs."""
    beside: int = 0
    """Other runs that may share the GPU of one."""

    @property
    def device(self) -> str:
        return self.engine.device

    def planner(self, study: Study) -> Planner:
        """Plans the study for this machine. Puts its numerics in force."""
        adopt(self.store)
        found = enforce(self.device, study.train.dtype)
        numerics = found if self.engine.here else replace(found, gpu=None)
        return Planner(study, self.store, numerics, identifying(study, self.store.data_dir), self._clock(study))

    def _clock(self, study: Study) -> Calibration | None:
        """Step times for a budget in seconds: from the store, or measured, which needs the corpus prepared."""
        if all(rung.budget.seconds is None for rung in (*study.smaller, study)):
            return None
        if self.execution.devices > 1:
            raise ArgumentError("devices", "a budget in seconds is measured for runs on one device")

        def corpus() -> Path:
            try:
                return prepare(study.data, self.store.data_dir, study.folder).directory
            except DataError as error:
                raise study.error("data", str(error)) from error

        return Calibration(self.store, self.engine, corpus, say=teller(self.progress))

    def request(self, plan: Plan, identity: RunDocument) -> Request:
        return Request.of(plan, identity, self.store, self.execution, self.beside)

    def follow(self, study: Study, labels: Mapping[str, tuple[str, int]]) -> Progress:
        return open_progress(self.store, study.name, labels, self.progress)


def open_workshop(
    store: str | Path,
    device: str | None,
    engine: str,
    workers: int | None,
    execution: Mapping[str, object] | None = None,
    progress: Wanted = False,
    workers_per_gpu: int = 1,
    engine_settings: Mapping[str, str] | None = None,
) -> Workshop:
    """Raises ArgumentError, and EngineError for an engine that there is not."""
    if workers is not None and workers < 1:
        raise ArgumentError("workers", f"expected a whole number from 1, not {workers}")
    if workers_per_gpu < 1:
        raise ArgumentError("workers_per_gpu", f"expected a whole number from 1, not {workers_per_gpu}")
    settings = _execution(execution or {})
    if settings.shard and settings.devices == 1:
        raise ArgumentError("shard", "weights are shared out among several devices: give their number, too (devices)")
    if settings.devices > 1 and workers_per_gpu > 1:
        raise ArgumentError("devices", "runs that share a GPU have no more than that one")
    options = Options(device, workers, workers_per_gpu, engine_settings or {}, settings.devices)
    found = load(engine, options)
    if device is None and found.here and (reason := unused_gpu()):
        teller(progress)(f"This machine has a GPU that is not used: {reason}.")
    beside = workers_per_gpu - 1 if found.device == "cuda" else 0
    return Workshop(Store(store), found, settings, progress, beside=beside)


def _execution(settings: Mapping[str, object]) -> Execution:
    try:
        return checked(Execution, settings)
    except SpecError as error:
        raise ArgumentError(error.path, error.reason) from error
