"""One command's part of a search: ask for settings, have them trained, tell what they scored.

All that must survive a kill is in optuna's storage and in the store of runs. A trial that was running is taken over and
its runs go on from their saved states; promotions to larger shares of the budget follow from scores, so they are
decided again, and found done.
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
from ablate.searching.asking import BEYOND, REPEATS, Asking
from ablate.searching.racing import best_first
from ablate.searching.storage import Owner
from ablate.searching.trial_runner import Job, TrialRunner
from ablate.study.search_spec import SearchSpec

TRIES = 3
"""Most attempts at a trial's run in one command after its worker failed or was killed."""
FIRST_FAILURES = 3
"""The search ends after this number of failed trials without a score: they have a common cause."""
WATCH_SECONDS = 0.5
"""Seconds between a pruner's checks of the running trials."""


@dataclass
class Flight:
    """A job on its way."""

    number: int
    job: Job
    rung: int
    trial: optuna.Trial | None
    """Still open; None for a promotion."""
    waiting: set[str] = field(default_factory=set)
    """Digests of runs that have not ended."""
    tries: int = 1
    reported: int = 0
    pruned: bool = False
    is_cut: bool = False
    """Whether a run was ended by the pruner before it had its score."""


class Search:
    """Runs until the storage has as many trials as the search asks for."""

    def __init__(
        self,
        study: optuna.Study,
        spec: SearchSpec,
        lab: TrialRunner,
        owner: Owner,
        sampler: str,
        say: Callable[[str], None],
    ) -> None:
        """sampler: its kind, where the study says `auto`."""
        self.study, self.spec, self.lab, self.owner, self.say = study, spec, lab, owner, say
        self.after_trial: Callable[[], None] = lambda: None
        """Called when a trial has ended."""
        self.failed: dict[int, str] = {}
        """Trials that failed, and why."""
        self.flights: list[Flight] = []
        self.done: list[dict[int, tuple[float, ...]]] = [{} for _ in spec.shares]
        """Values by trial, per share of the budget."""
        self.asking = Asking(study, spec, lab, owner, sampler)
        self._adopted: list[optuna.Trial] = []
        self._broken = False
        self._again: list[Request] = []
        self._watched = 0.0

    def run(self, engine: Engine) -> None:
        """Carry on to the end."""
        with self.owner.alive():
            self._adopted = self.owner.take_over(self.study)
            if self._adopted:
                self.say(f"{len(self._adopted)} interrupted trials resumed")
            with closing(engine.run(self._requests())) as events:
                for event in events:
                    self._hear(event)
                    self._watch(engine)

    # What comes next

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
            missing = missing[:1]  # the next seed is trained once this one has not ended the trial
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

    # What has happened

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
        """Begin the next seed of a trial whose seeds are trained in turn, unless those before are worse for certain."""
        if not self.spec.prunes_seeds or flight.trial is None:
            return False
        left = [request for request in flight.job.requests if request.missing()]
        self._report_seeds(flight, flight.trial)
        if not left:
            return False
        if REPEATS not in flight.trial.user_attrs and flight.trial.should_prune():
            flight.pruned = flight.is_cut = True
            return False
        flight.waiting = {left[0].digest}
        self._again.append(left[0])
        return True

    def _report_seeds(self, flight: Flight, trial: optuna.Trial) -> None:
        """Tell the pruner the score of every seed that has ended; steps are the seeds, so that trials are paired."""
        for request in flight.job.requests[flight.reported :]:
            values = self.lab.values(replace(flight.job, requests=(request,)))
            if values is None:
                return
            flight.reported += 1
            if math.isfinite(values[0]):
                trial.report(values[0], request.identity.seed)

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
        """Tell the pruner how the running trials do, and end those that it gives up."""
        if self.spec.pruner is None or self.spec.prunes_seeds or time.monotonic() - self._watched < WATCH_SECONDS:
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
            trial.report(curve[step], step + 1)
            flight.reported = step + 1
            if step + 1 >= flight.job.wait and trial.should_prune():
                return True
        return False

    def _land(self, flight: Flight) -> None:
        """All runs of a job have ended."""
        if flight.is_cut and flight.trial is not None:
            flight.trial.set_user_attr("runs", list(flight.job.digests))
            self.study.tell(flight.trial, state=TrialState.PRUNED)
            unit = "seeds" if self.spec.prunes_seeds else "validations"
            self.say(f"trial {flight.number}: pruned after {flight.reported} {unit}")
            self.after_trial()
            return
        values = self.lab.values(flight.job)  # also of a trial that was given up, and had ended by then
        if values is None:
            raise RuntimeError(f"trial {flight.number} ended without results")
        self.done[flight.rung][flight.number] = values
        if flight.trial is not None:
            self._report_rest(flight, flight.trial)
            flight.trial.set_user_attr("runs", list(flight.job.digests))
            # Distance of measurements beyond limits: the sampler takes it as a penalty, and the best are within them.
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

    def _report_rest(self, flight: Flight, trial: optuna.Trial) -> None:
        """Other trials are compared with the whole curve of one that was not pruned."""
        if self.spec.pruner is None or self.spec.prunes_seeds:
            return
        for step, loss in enumerate(self.lab.curve(flight.job)[flight.reported :], start=flight.reported + 1):
            if math.isfinite(loss):
                trial.report(loss, step)

    # Fidelity

    def _promotion(self) -> Flight | None:
        """The best trial of the largest share that has earned the next one and is not there yet."""
        # Other commands' scores at the first share; larger shares are found in the store when promoted.
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
        """The best 1/factor of the trials that reached a share, the best first."""
        fidelity = self.spec.fidelity
        if fidelity is None:
            return ()
        reached = self.done[rung]
        return best_first(reached, list(self.spec.objectives.values()))[: len(reached) // fidelity.factor]
