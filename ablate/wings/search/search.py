"""Search loop of one command: ask for settings, train them, tell the sampler their scores.

All state that must survive a kill is in optuna's storage and in the store of runs. A trial that was running is taken
over, and its runs resume from their saved states. Promotions to larger shares of the budget are determined by scores,
so after a restart they are decided again and their runs are found in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import optuna
from optuna.trial import TrialState

from ablate.running.engines import Engine, Event
from ablate.running.request import Request
from ablate.wings.search.asking import BEYOND, REPEATS, SHARE, Asking
from ablate.wings.search.ranking import best_first
from ablate.wings.search.search_spec import SearchSpec
from ablate.wings.search.storage import Owner
from ablate.wings.search.trial_runner import Job, StudyTrialRunner

TRIES = 3
"""Maximum number of attempts at a trial's runs in one command, if workers fail or are killed."""
FIRST_FAILURES = 3
"""The search ends after this number of failed trials if there are no scores yet: they probably have a common cause."""


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
    told: set[int] = field(default_factory=set)
    """Steps of the losses that were reported to the pruner, also by an earlier command."""
    tries: int = 1
    reported: int = 0
    pruned: bool = False
    is_cut: bool = False
    """Whether the pruner ended a run before it had its score."""

    def report(self, loss: float, step: int) -> bool:
        """Report a loss to the pruner, unless it is known. Returns whether it is news."""
        self.reported = step
        if self.trial is None or step in self.told or not math.isfinite(loss):
            return False
        self.trial.report(loss, step)
        self.told.add(step)
        return True


class Search:
    """Search loop of one command: runs until the storage has trials that cost as much as the search asks for."""

    def __init__(
        self,
        study: optuna.Study,
        spec: SearchSpec,
        lab: StudyTrialRunner,
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

    def run(self, engine: Engine) -> None:
        """Resume interrupted trials and run the search to its end."""
        with self.owner.alive():
            self._adopted = self.owner.take_over(self.study)
            if self._adopted:
                self.say(f"{len(self._adopted)} interrupted trials resumed")
            with closing(engine.run(self._requests(), partial(self._prune, engine))) as events:
                for event in events:
                    self._hear(event)

    # Proposals

    def _requests(self) -> Iterator[Request | None]:
        """The next runs to start; None to wait for an event."""
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
            missing = [request for request in flight.job.requests if request.missing()]
            if not missing:
                self._land(flight)
                continue
            flying = {digest for other in self.flights for digest in other.waiting}
            flight.waiting = {request.digest for request in missing}
            self.flights.append(flight)
            yield from (request for request in missing if request.digest not in flying)

    def _next(self) -> Flight | None:
        while self._adopted:
            trial = self._adopted.pop(0)
            if job := self.asking.again(trial):
                known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
                return Flight(trial.number, job, 0, trial, told=set(known))
        if promotion := self._promotion():
            return promotion
        found = self.asking.next()
        return Flight(found[0].number, found[1], 0, found[0]) if found else None

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
            if not flight.waiting:
                self.flights.remove(flight)
                self._land(flight)

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

    def _prune(self, engine: Engine) -> None:
        """Report the curves of running trials to the pruner, and end the trials that it gives up.

        Repeats are not pruned: the mean over the seeds of their settings would lack the bad ones.
        """
        if self.spec.pruning() is None:
            return
        for flight in self.flights:
            trial, job = flight.trial, flight.job
            if trial is None or flight.pruned or REPEATS in trial.user_attrs:
                continue
            for step, loss in enumerate(self.lab.curve(job)[flight.reported :], start=flight.reported + 1):
                is_news = flight.report(loss, step)
                if is_news and job.wait <= step < job.validations and trial.should_prune():
                    flight.pruned = True
                    engine.stop(job.digests[0])
                    break

    def _land(self, flight: Flight) -> None:
        """Record the scores, or the pruning, of a job whose runs have all ended."""
        if flight.is_cut and flight.trial is not None:
            flight.trial.set_user_attr("runs", list(flight.job.digests))
            trained = len(self.lab.curve(flight.job)) / flight.job.validations
            flight.trial.set_user_attr(SHARE, min(1.0, trained))
            self.study.tell(flight.trial, state=TrialState.PRUNED)
            self.say(f"trial {flight.number}: pruned after {flight.reported} of {flight.job.validations} validations")
            self.after_trial()
            return
        values = self.lab.values(flight.job)  # also if the pruner gave up the trial just after its end
        if values is None:
            raise RuntimeError(f"trial {flight.number} ended without results")
        self.done[flight.rung][flight.number] = values
        if flight.trial is not None:
            if self.spec.pruning() is not None:  # the pruner compares others with the rest of this curve
                for step, loss in enumerate(self.lab.curve(flight.job)[flight.reported :], start=flight.reported + 1):
                    flight.report(loss, step)
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

    # Fidelity

    def _promotion(self) -> Flight | None:
        """The next promotion, at the largest share that has one: of the trials that reached a share, the best
        1/`factor` are promoted. None if there is none."""
        # Take over other commands' scores at the first share; those at larger shares are found in the store.
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            self.done[0].setdefault(trial.number, tuple(trial.values))
        if self.spec.fidelity is None:
            return None
        for rung in reversed(range(len(self.spec.shares) - 1)):
            flying = {flight.number for flight in self.flights if flight.rung == rung + 1}
            reached = self.done[rung]
            ranked = best_first(reached, list(self.spec.objectives.values()))
            for number in ranked[: len(reached) // self.spec.fidelity.factor]:
                if number not in self.done[rung + 1] and number not in flying and number not in self.failed:
                    params = self.study.get_trials(deepcopy=False)[number].params
                    return Flight(number, self.lab.job(params, self.spec.shares[rung + 1]), rung + 1, None)
        return None
