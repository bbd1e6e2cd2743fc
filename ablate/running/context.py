"""The context in which runs are executed: store, engine with options, and observers of progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.machine.numerics import Numerics, enforce, unlike_gpus, unused_gpu
from ablate.machine.recent import recently
from ablate.planning.campaign import Planner
from ablate.planning.durations import speed_for
from ablate.planning.make_plan import identifying
from ablate.planning.plan import Clock, Plan
from ablate.running.engines import Engine, load
from ablate.running.following import Progress
from ablate.running.options import Options
from ablate.running.progress import Wanted, open_progress, teller
from ablate.running.request import Request
from ablate.running.study_plan import StudyPlan
from ablate.study.study import Study
from evals.costs.peaks import relative_error
from store import Store
from store.documents import RunDocument
from store.errors import ArgumentError
from store.extensions import module_of


@dataclass(frozen=True)
class RunContext:
    """The store, the engine with its options, and the observers of a study's runs.

    progress: the caller's choice of progress output. trackers: names of the tracking services to which runs are logged.
    """

    store: Store
    engine: Engine
    options: Options
    progress: Wanted
    trackers: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        return self.engine.device

    def planner(self, study: Study, *, unread: bool = False) -> Planner:
        """A planner of the study for this context. Enforces the numerics in this process.

        unread: give a corpus whose hub cannot be reached an open identity instead of raising.
        """
        found = enforce(self.device, study.train.dtype, error=_error)
        numerics = found if self.engine.here else replace(found, gpu=None)
        identify = identifying(study, self.store.data_dir, unread=unread)
        return Planner(study, self.store, numerics, identify, self._clock(study))

    def _clock(self, study: Study) -> Clock | None:
        """Clock for budgets in seconds; None for other budgets."""
        if all(rung.budget.seconds is None for rung in (*study.smaller, study)):
            return None
        if (wing := module_of(__name__)) is None:
            raise study.error("budget.seconds", "this installation measures no step times: give another budget")
        found: Clock = wing.clock(self, study)
        return found

    def plan(self, asked: Study) -> StudyPlan:
        """Plan a study for this device and engine, given the results in the store."""
        planner = self.planner(asked, unread=True)
        foreseen = planner.foreseen()
        outcome = foreseen.outcome
        numerics = Numerics(**outcome.plan.runs[0].identity.numerics.model_dump())
        return StudyPlan(
            **vars(foreseen),
            speed=speed_for([rung.plan for rung in outcome.rungs], numerics),
            done={run.digest: planner.loss(run.digest) is not None for rung in outcome.rungs for run in rung.plan.runs},
            store=self.store,
            asked=asked,
            execution=self.options,
            at_once=self.engine.at_once,
        )

    def request(self, plan: Plan, identity: RunDocument) -> Request:
        beside = self.options.workers_per_gpu - 1 if self.device == "cuda" else 0
        return Request.of(plan, identity, self.store, self.options.execution, beside)

    def follow(self, study: Study, labels: Mapping[str, tuple[str, int]], *, blind: bool) -> Progress:
        return open_progress(self.store, study.name, labels, self.progress, blind=blind)


def _error(rows: int, inner: int, columns: int) -> float:
    """Error of a float32 product on one thread, cached for an hour. A worker computes its own, and refuses a run that
    was planned with other numerics."""
    shape = f"{rows} × {inner} × {columns}"
    return recently(f"error of a product of {shape}", lambda: relative_error(rows, inner, columns), slows=False)


def open_context(
    store: str | Path, options: Mapping[str, object], progress: Wanted = False, trackers: Sequence[str] = ()
) -> RunContext:
    """Build a context. Raises ArgumentError, and EngineError for an engine that does not exist."""
    following = module_of("ablate.running.trackers")
    if following is not None:
        following.check(trackers)
    elif trackers:
        raise ArgumentError("tracker", "nothing that logs runs to trackers is installed", trackers[0])
    chosen = Options.of(options)
    engine = load(chosen)
    if chosen.device is None and engine.here and (reason := unused_gpu()):
        teller(progress)(f"This machine has a GPU that is not used: {reason}.")
    if engine.device == "cuda" and engine.here and (reason := unlike_gpus()):
        teller(progress)(reason)
    return RunContext(Store(store), engine, chosen, progress, tuple(dict.fromkeys(trackers)))
