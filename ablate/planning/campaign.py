"""Stages of a study: tune every arm, then train its seeds, and further seeds with `seeds: auto`.

A stage consists of plans. Losses alone determine the next stage, so a study that was killed repeats the same stages
and finds their results in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Literal

from ablate.planning.grid import grid
from ablate.planning.known_rates import NO_STARTS, Starts
from ablate.planning.plan import ArmPlan, Plan
from ablate.planning.trials import Batches, IllegalSpaceError, Legal, Settings, Stalls, Tuned, sampled
from ablate.study.arms import Arm
from ablate.study.space import Space
from ablate.study.study import Study, StudyError
from ablate.study.tune_spec import BELOW, FINE, Pass, TuneSpec, rates_alone, rates_around
from reports.judge.verdicts import looks
from store.documents import SearchStart, StudyLook
from store.documents.tuning import RATE
from store.extensions import modules_of

UNTUNED = ("measure", "evals", "probes")
"""Sections that tuning runs omit."""

LossOf = Callable[[str], float | None]
"""Digest of a run → its validation loss; infinite if it diverged, None if it has no result."""
MakePlan = Callable[[Study], Plan]
StallsAbove = Callable[[ArmPlan], float]
"""Arm, whose data are prepared → loss above which a run of it has stalled; infinite if there is no threshold."""
StartsOf = Callable[[Study, Plan], Starts]
"""A study and its plan before tuning → where the searches of its arms begin."""


Axis = Literal["size", "length"]
"""Property in which a rung is smaller than the last: length if it has the same models, else size."""


class UnfinishedError(Exception):
    """A run whose loss determines the next stage has no result."""


@dataclass(frozen=True)
class Tuning:
    """Tuning of an arm."""

    arm: str
    passes: tuple[TuningPass, ...]
    """Passes in order; the last one determines the settings."""
    start: SearchStart | None = None
    """Where the search began, if at known rates."""


@dataclass(frozen=True)
class TuningPass:
    """Tuning runs of an arm, all of one length."""

    fraction: float
    """Share of the study's budget."""
    tuned: Tuned
    runs: tuple[tuple[str, ...], ...]
    """Digests of the runs of each trial."""


@dataclass(frozen=True)
class RungStudy:
    """A study at one rung of its ladder; the whole study if it has no ladder."""

    plan: Plan
    tunings: tuple[Tuning, ...] = ()
    axis: Axis | None = None
    """Property in which the rung is smaller than the last; None for the last."""


def axis(rung: Study, last: Study) -> Axis | None:
    """The axis of a rung; None for the last rung itself."""
    if rung.rung == last.rung:
        return None
    return "length" if [arm.model for arm in rung.arms] == [arm.model for arm in last.arms] else "size"


@dataclass(frozen=True)
class CampaignOutcome:
    """All plans of a study, one per rung of its ladder, in the order listed."""

    rungs: tuple[RungStudy, ...]
    looks: tuple[StudyLook, ...] = ()

    @property
    def plan(self) -> Plan:
        """Plan of the last rung, on which arms are compared."""
        return self.rungs[-1].plan


@dataclass(frozen=True)
class Stage:
    """Runs to carry out before the next stage. `outcome` is set once the seeds of all arms are planned."""

    name: str
    plans: tuple[Plan, ...]
    outcome: CampaignOutcome | None = None
    tunes: bool = False
    """Whether the stage belongs to tuning: its losses determine the next stage."""


Stages = Generator[Stage, Sequence[str], CampaignOutcome]
"""Generator of stages. After a stage with an outcome, send the names of the arms that more seeds could settle."""


def comparable_rungs(study: Study, plan: MakePlan) -> tuple[Study, ...]:
    """The rungs of a study's ladder, or the study alone. Raises StudyError if their losses cannot be compared."""
    rungs = *study.smaller, study
    for wing in modules_of(__name__):
        wing.refuse_unlike(rungs, plan)
    return rungs


def campaign(
    study: Study,
    plan: MakePlan,
    losses: LossOf,
    stalls_above: StallsAbove = lambda arm: math.inf,
    starts: StartsOf = lambda study, plan: NO_STARTS,
) -> Stages:
    """The stages of a study. Raises StudyError, and UnfinishedError if a result that determines the next is missing."""
    rungs = comparable_rungs(study, plan)
    tuned = yield from _tuned(rungs, plan, losses, stalls_above, starts)
    schedule = looks(study.auto_seeds.start, study.auto_seeds.cap) if study.auto_seeds else ()
    study, tunings = tuned[-1]
    smaller = tuple(RungStudy(plan(rung), tried, axis(rung, study)) for rung, tried in tuned[:-1])
    counts = dict.fromkeys((arm.name for arm in study.arms), schedule[0].seeds if schedule else 0)
    for number in range(max(1, len(schedule))):
        seeded = study
        if study.auto_seeds:
            arms = (replace(arm, seeds=tuple(range(counts[arm.name]))) for arm in study.arms)
            seeded = replace(study, arms=tuple(arms))
        outcome = CampaignOutcome((*smaller, RungStudy(plan(seeded), tunings)), schedule)
        name = f"seeds, round {number + 1}" if schedule else "seeds"
        if sources := _needed(rung.plan for rung in outcome.rungs):
            yield Stage("arms that others need", sources)
        open_arms = yield Stage(name, tuple(rung.plan for rung in outcome.rungs), outcome)
        if not open_arms or number + 1 >= len(schedule):
            break
        more = dict.fromkeys([study.baseline, *open_arms], schedule[number + 1].seeds)
        counts |= more
        for arm in study.arms:
            for source in arm.sources:
                counts[source] = max(counts[source], counts[arm.name])
    return outcome


Tried = tuple[Study, tuple[Tuning, ...]]
"""A rung with its arms at their tuned settings, and the tuning that found them."""


def _tuned(
    rungs: Sequence[Study], plan: MakePlan, losses: LossOf, stalls_above: StallsAbove, starts: StartsOf
) -> Generator[Stage, Sequence[str], Sequence[Tried]]:
    """Tune all arms of all rungs concurrently, in rounds. Arms that start from others, or have them as teachers, come
    after those, so as to use them at their tuned settings. Each length is tuned separately: the best rate of a long
    run may fail to train a short one."""
    tried: list[Tried] = [(rung, ()) for rung in rungs]
    begun = [starts(rung, plan(rung)) if rung.tune else NO_STARTS for rung in rungs]
    rounds = count(1)
    for needy in (False, True):
        jobs = [
            [_Job(rung, arm, start.get(arm.name)) for arm in rung.arms if rung.tune and bool(arm.sources) == needy]
            for (rung, _), start in zip(tried, begun, strict=True)
        ]
        together = list(chain.from_iterable(jobs))
        while waiting := [job for job in together if not job.is_done]:
            asked = {(id(job.study), job.at): job.study for job in waiting}
            plans = {key: plan(_trials(rung, key[1], waiting)) for key, rung in asked.items()}
            if sources := _needed(plans.values()):
                yield Stage("arms that others need", sources, tunes=True)
            yield Stage(f"tuning, round {next(rounds)}", tuple(plans.values()), tunes=True)
            for job in waiting:
                job.hear(plans[id(job.study), job.at].arms, losses, stalls_above)
        for place, ((rung, tunings), own) in enumerate(zip(tried, jobs, strict=True)):
            chosen = {job.arm.name: job.passes[-1].tuned.chosen for job in own}
            arms = [rung.builder.tuned(arm, chosen[arm.name]) if arm.name in chosen else arm for arm in rung.arms]
            found = (Tuning(job.arm.name, tuple(job.passes), job.start) for job in own)
            tried[place] = replace(rung, arms=tuple(arms)), (*tunings, *found)
    return tried


def _needed(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Plans that others depend on."""
    return tuple(sources for plan in plans if (sources := plan.sources()).arms)


def _trials(rung: Study, at: Pass, jobs: Sequence[_Job]) -> Study:
    """A study whose arms are the jobs' next trials, with the seeds and the share of the budget of their pass. Arms that
    trials depend on are added, with the full budget."""
    arms = [replace(arm, share=at.fraction) for job in jobs if job.study is rung and job.at == at for arm in job.arms()]
    needed = {name for arm in arms for name in arm.sources}
    sections = rung.sections.model_copy(update={"seeds": at.seeds, "tune": None, **dict.fromkeys(UNTUNED)})
    first, *others = rung.arms
    # Without seeds the baseline is not trained, but the others' budgets and parameters are matched to it.
    baseline = first if first.name in needed else replace(first, seeds=())
    sources = [arm for arm in others if arm.name in needed]
    return replace(rung, sections=sections, arms=(baseline, *sources, *arms), reads="tuning")


def propose(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls = lambda loss: False) -> Batches:
    """Yield batches of settings of one arm to try; expects the losses of each batch to be sent; returns a `Tuned`.

    Deterministic given the losses, so that an interrupted tuning resumes from the store. legal: whether an arm can be
    built with settings that the study does not list.
    """
    return (grid if spec.is_grid else sampled)(spec, space, legal, stalls)


class _Job:
    """Tunes one arm of one rung, pass by pass. start: known rates, with which the last pass begins at once."""

    def __init__(self, study: Study, arm: Arm, start: SearchStart | None) -> None:
        if study.tune is None:
            raise ValueError("the study tunes nothing")
        self.study, self.arm, self.spec, self.start = study, arm, study.tune, start
        self.passes: list[TuningPass] = []
        self._planned = self.spec.passes if start is None else self.spec.passes[-1:]
        self._stalled_above = math.inf
        self._begin(self.spec.space_around(arm.train.lr) if start is None else rates_alone(start.rates))

    @property
    def at(self) -> Pass:
        """The current pass."""
        return self._planned[len(self.passes)]

    @property
    def is_done(self) -> bool:
        """Whether all passes are done, or every trial of one diverged, which leaves nothing to refine."""
        return len(self.passes) == len(self._planned) or any(math.isinf(each.tuned.least) for each in self.passes)

    def _begin(self, space: Space) -> None:
        self._runs: list[tuple[str, ...]] = []
        self._batches: Batches = propose(self.spec, space, self._legal, lambda loss: loss > self._stalled_above)
        self._batch = self._next()

    def _legal(self, settings: Settings) -> bool:
        try:
            self.study.builder.tuned(self.arm, settings)
        except StudyError:
            return False
        return True

    def arms(self) -> list[Arm]:
        """Arms to try next."""
        variants = [self.study.builder.tuned(self.arm, settings) for settings in self._batch]
        return [replace(arm, name=self._name(number)) for number, arm in enumerate(variants)]

    def _name(self, number: int) -> str:
        values = ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in self._batch[number].items())
        return f"{self.arm.name} with {values}"

    def hear(self, arms: Sequence[ArmPlan], losses: LossOf, stalls_above: StallsAbove) -> None:
        """Take in the losses of the last batch, whose runs are done."""
        self._stalled_above = stalls_above(arms[0])
        runs = {arm.name: tuple(run.digest for run in arm.runs) for arm in arms}
        digests = [runs[self._name(number)] for number in range(len(self._batch))]
        self._runs += digests
        try:
            self._batch = self._next([_known(losses, each) for each in digests])
        except StopIteration as end:
            self.passes.append(TuningPass(self.at.fraction, end.value, tuple(self._runs)))
            if not self.is_done:
                self._begin(rates_around(end.value.chosen[RATE], BELOW if end.value.fails_above else FINE))

    def _next(self, losses: Sequence[Sequence[float]] | None = None) -> list[Settings]:
        try:
            return next(self._batches) if losses is None else self._batches.send(losses)
        except IllegalSpaceError as error:
            raise self.study.error("tune.space", f"{error} (in arm {self.arm.name})") from error


def _known(losses: LossOf, digests: Sequence[str]) -> tuple[float, ...]:
    found = [losses(digest) for digest in digests]
    known = [loss for loss in found if loss is not None]
    if len(known) < len(found):
        raise UnfinishedError("a tuning run has no result")
    return tuple(known)
