"""Search loop of one command: ask for settings, train them, tell the sampler their scores.

All state that must survive a kill is in optuna's storage and in the store of runs. A trial that was running is taken
over, and its runs resume from their saved states. Promotions to larger shares of the budget are determined by scores,
so after a restart they are decided again and their runs are found in the store.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import optuna
from optuna.trial import TrialState

from ablate.running.engines import Engine, Event
from ablate.running.request import Request
from ablate.wings.search.asking import BEYOND, REPEATS, SHARE, Asking
from ablate.wings.search.racing import best_first
from ablate.wings.search.search_spec import SearchSpec
from ablate.wings.search.storage import Owner
from ablate.wings.search.trial_runner import Job, TrialRunner

TRIES = 3
"""Maximum number of attempts at a trial's runs in one command, if workers fail or are killed."""
FIRST_FAILURES = 3
"""The search ends after this number of failed trials if there are no scores yet: they probably have a common cause."""
WATCH_SECONDS = 0.5
"""Seconds between a pruner's checks of the running trials."""


@dataclass
class Flight:
    """A job in progress."""

    number: int
    job: Job
    rung: int
    trial: optuna.Trial | None
    """The open trial of optuna; None for a promotion, whose trial is complete."""
    waiting: set[str] = field(default_factory=set)
    """Digests of started runs that have not ended."""
    tries: int = 1
    reported: int = 0
    pruned: bool = False
    is_cut: bool = False
    """Whether the pruner ended a run before it had its score."""

    def report(self, value: float, step: int) -> None:
        """Report a value of the open trial to the pruner, unless an interrupted command did."""
        assert self.trial is not None
        stored = self.trial.study.get_trials(deepcopy=False)[self.number].intermediate_values
        if step not in stored:
            self.trial.report(value, step)


class Search:
    """Search loop of one command: runs until the storage has trials that cost as much as the search asks for."""

    def __init__(
        self,
        study: optuna.Study,
        spec: SearchSpec,
        lab: TrialRunner,
        owner: Owner,
        sampler: str,
        say: Callable[[str], None],
    ) -> None:
        """sampler: kind of the sampler, with `auto` resolved."""
        self.study, self.spec, self.lab, self.owner, self.say = study, spec, lab, owner, say
        self.after_trial: Callable[[], None] = lambda: None
        """Callback after the end of each trial."""
        self.failed: dict[int, str] = {}
        """Errors of failed trials, by number."""
        self.flights: list[Flight] = []
        self.done: list[dict[int, tuple[float, ...]]] = [{} for _ in spec.shares]
        """Scores by trial number, one map per share of the budget."""
        self.asking = Asking(study, spec, lab, owner, sampler)
        self._adopted: list[optuna.Trial] = []
        self._broken = False
        self._again: list[Request] = []
        self._watched = 0.0

    def run(self, engine: Engine) -> None:
        """Resume interrupted trials and run the search to its end."""
        with self.owner.alive():
            self._adopted = self.owner.take_over(self.study)
            if self._adopted:
                self.say(f"{len(self._adopted)} interrupted trials resumed")
            with closing(engine.run(self._requests())) as events:
                for event in events:
                    self._hear(event)
                    self._watch(engine)

    # Proposals

    def _requests(self) -> Iterator[Request | None]:
        while not self._broken:
            if self._again:
                yield self._again.pop()
                continue
            flight = self._next()
            if flight is None:
                if not self.flights:
                    return
                yield None
                continue
            yield from self._begin(flight)

    def _begin(self, flight: Flight) -> Iterator[Request]:
        flying = {digest for other in self.flights for digest in other.waiting}
        missing = [request for request in flight.job.requests if request.missing()]
        if not missing:
            self._land(flight)
            return
        if self.spec.prunes_seeds:
            missing = missing[:1]  # the next seed starts only if the pruner lets the trial go on
        flight.waiting = {request.digest for request in missing}
        self.flights.append(flight)
        yield from (request for request in missing if request.digest not in flying)

    def _next(self) -> Flight | None:
        while self._adopted:
            trial = self._adopted.pop(0)
            if job := self.asking.again(trial):
                return Flight(trial.number, job, 0, trial)
        return self._promotion() or self._new()

    def _new(self) -> Flight | None:
        found = self.asking.next()
        if found is None:
            return None
        trial, job = found
        return Flight(trial.number, job, 0, trial)

    # Events

    def _hear(self, event: Event | None) -> None:
        if event is None or event.kind == "started":
            return
        for flight in [flight for flight in self.flights if event.digest in flight.waiting]:
            if event.kind == "failed" and not flight.pruned:
                self._retry(flight, event)
                continue
            flight.is_cut |= event.kind == "failed"
            flight.waiting.discard(event.digest)
            if not flight.waiting and not self._goes_on(flight):
                self.flights.remove(flight)
                self._land(flight)

    def _goes_on(self, flight: Flight) -> bool:
        """Start the next seed of a trial whose seeds are trained in turn, unless the pruner gives up the trial. Returns
        whether a seed was started."""
        if not self.spec.prunes_seeds or flight.trial is None:
            return False
        left = [request for request in flight.job.requests if request.missing()]
        self._report_seeds(flight)
        if not left:
            return False
        if REPEATS not in flight.trial.user_attrs and flight.trial.should_prune():
            flight.pruned = flight.is_cut = True
            return False
        flight.waiting = {left[0].digest}
        self._again.append(left[0])
        return True

    def _report_seeds(self, flight: Flight) -> None:
        """Report the scores of ended seeds to the pruner. Steps are the seeds, so that trials are compared in pairs."""
        for request in flight.job.requests[flight.reported :]:
            values = self.lab.values(replace(flight.job, requests=(request,)))
            if values is None:
                return
            flight.reported += 1
            if math.isfinite(values[0]):
                flight.report(values[0], request.identity.seed)

    def _retry(self, flight: Flight, event: Event) -> None:
        if flight.tries < TRIES:
            flight.tries += 1
            self.say(f"trial {flight.number}: {event.error}: restarted")
            requests = [request for request in flight.job.requests if request.digest == event.digest]
            self._again += [r for r in requests if r.digest not in {a.digest for a in self._again}]
            return
        self.flights.remove(flight)
        self.failed[flight.number] = event.error or "failed"
        if flight.trial is not None:
            flight.trial.set_user_attr("error", self.failed[flight.number])
            self.study.tell(flight.trial, state=TrialState.FAIL)
        self._broken = len(self.failed) >= FIRST_FAILURES and not any(self.done)

    def _watch(self, engine: Engine) -> None:
        """Report the curves of running trials to the pruner, and end the trials that it gives up."""
        if self.spec.pruning() is None or self.spec.prunes_seeds or time.monotonic() - self._watched < WATCH_SECONDS:
            return
        self._watched = time.monotonic()
        for flight in self.flights:
            if flight.trial is None or flight.pruned or REPEATS in flight.trial.user_attrs:
                continue
            if self._hopeless(flight, flight.trial):
                flight.pruned = True
                engine.stop(flight.job.digests[0])

    def _hopeless(self, flight: Flight, trial: optuna.Trial) -> bool:
        curve = self.lab.curve(flight.job)
        for step in range(flight.reported, len(curve)):
            flight.report(curve[step], step + 1)
            flight.reported = step + 1
            if step + 1 >= flight.job.wait and trial.should_prune():
                return True
        return False

    def _land(self, flight: Flight) -> None:
        """Record the scores, or the pruning, of a job whose runs have all ended."""
        if flight.is_cut and flight.trial is not None:
            flight.trial.set_user_attr("runs", list(flight.job.digests))
            unit, whole, trained = "validations", flight.job.validations, len(self.lab.curve(flight.job))
            if self.spec.prunes_seeds:
                unit, whole, trained = "seeds", self.spec.seeds, flight.reported
            flight.trial.set_user_attr(SHARE, min(1.0, trained / whole))
            self.study.tell(flight.trial, state=TrialState.PRUNED)
            self.say(f"trial {flight.number}: pruned after {flight.reported} {unit}")
            self.after_trial()
            return
        values = self.lab.values(flight.job)  # also if the pruner gave up the trial just after its end
        if values is None:
            raise RuntimeError(f"trial {flight.number} ended without results")
        self.done[flight.rung][flight.number] = values
        if flight.trial is not None:
            self._report_rest(flight)
            flight.trial.set_user_attr("runs", list(flight.job.digests))
            # Excess over the limits on measurements: the sampler penalises it, and the best trials must have none.
            beyond = self.lab.beyond(flight.job)
            for name, far in beyond.items():
                flight.trial.set_constraint(name, far)
            if over := {name: far for name, far in beyond.items() if far > 0}:
                flight.trial.set_user_attr(BEYOND, over)
            self.study.tell(flight.trial, values)
        shown = ", ".join(f"{n} {v:.6g}" for n, v in zip(self.spec.objectives, values, strict=True))
        share = f" at {self.spec.shares[flight.rung]:.0%}" if len(self.spec.shares) > 1 else ""
        again = flight.trial.user_attrs.get(REPEATS) if flight.trial else None
        repeats = f" (trial {again} with another seed)" if again is not None else ""
        self.say(f"trial {flight.number}{repeats}{share}: {shown}")
        self.after_trial()

    def _report_rest(self, flight: Flight) -> None:
        """Report the rest of the curve of a trial that was not pruned, with which the pruner compares other trials."""
        if self.spec.pruning() is None or self.spec.prunes_seeds:
            return
        for step, loss in enumerate(self.lab.curve(flight.job)[flight.reported :], start=flight.reported + 1):
            if math.isfinite(loss):
                flight.report(loss, step)

    # Fidelity

    def _promotion(self) -> Flight | None:
        """The next promotion: the best promotable trial, at the largest share that has one; None if there is none."""
        # Take over other commands' scores at the first share; those at larger shares are found in the store.
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            self.done[0].setdefault(trial.number, tuple(trial.values))
        for rung in reversed(range(len(self.spec.shares) - 1)):
            flying = {flight.number for flight in self.flights if flight.rung == rung + 1}
            for number in self._promotable(rung):
                if number not in self.done[rung + 1] and number not in flying and number not in self.failed:
                    params = self.study.get_trials(deepcopy=False)[number].params
                    return Flight(number, self.lab.job(params, self.spec.shares[rung + 1]), rung + 1, None)
        return None

    def _promotable(self, rung: int) -> Sequence[int]:
        """Numbers of the best 1/factor of the trials that reached a share, best first."""
        fidelity = self.spec.fidelity
        if fidelity is None:
            return ()
        reached = self.done[rung]
        return best_first(reached, list(self.spec.objectives.values()))[: len(reached) // fidelity.factor]
