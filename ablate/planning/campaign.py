"""Stages of a study: tune every arm, then train its seeds, and more of them if the study asks for that.

Each stage is a plan. What comes next is decided from losses alone, so a study that was killed goes through the same
stages again and finds them in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from ablate.planning.grid import grid
from ablate.planning.ladder import Axis, axis, refuse_unlike
from ablate.planning.looks import looks
from ablate.planning.plan import ArmPlan, Plan
from ablate.planning.sampling import IllegalSpaceError, sampled
from ablate.planning.trials import Batches, Legal, Settings, Stalls, Tuned
from ablate.store.documents import StudyLook
from ablate.store.documents.tuning import RATE
from ablate.study.arms import Arm
from ablate.study.space import Space
from ablate.study.study import Study, StudyError
from ablate.study.tune_spec import BELOW, FINE, Pass, TuneSpec, rates_around

UNTUNED = ("measure", "evals", "probes")
"""Sections that tuning runs omit."""

LossOf = Callable[[str], float | None]
"""Digest of a run → its validation loss; infinite when it diverged, None where it has no result."""
MakePlan = Callable[[Study], Plan]
StallsAbove = Callable[[ArmPlan], float]
"""The loss above which a run of an arm, whose data are prepared, has stalled; infinite where none says so."""


class UnfinishedError(Exception):
    """A run that decides what comes next has no result."""


@dataclass(frozen=True)
class Tuning:
    """Tuning of an arm."""

    arm: str
    passes: tuple[TuningPass, ...]
    """The last decides."""


@dataclass(frozen=True)
class TuningPass:
    """Runs of one length that an arm was tuned on."""

    fraction: float
    """Share of the study's budget."""
    tuned: Tuned
    runs: tuple[tuple[str, ...], ...]
    """Digests of the runs of each trial."""


@dataclass(frozen=True)
class RungStudy:
    """A study at one rung of its ladder, or all there is without one."""

    plan: Plan
    tunings: tuple[Tuning, ...] = ()
    axis: Axis | None = None
    """Property that it has less of than the last rung."""


@dataclass(frozen=True)
class CampaignOutcome:
    """All that a study planned, at the rungs of its ladder as they are listed."""

    rungs: tuple[RungStudy, ...]
    looks: tuple[StudyLook, ...] = ()

    @property
    def plan(self) -> Plan:
        """Plan of the rung that is compared."""
        return self.rungs[-1].plan


@dataclass(frozen=True)
class Stage:
    """Runs to carry out before the next stage. Once the seeds of all arms are planned there is an `outcome`."""

    name: str
    plans: tuple[Plan, ...]
    outcome: CampaignOutcome | None = None
    tunes: bool = False
    """Whether what comes next depends on the losses."""


Stages = Generator[Stage, Sequence[str], CampaignOutcome]
"""Send it, after a stage that has an outcome, the names of the arms that more seeds could settle; else nothing."""


def campaign(study: Study, plan: MakePlan, losses: LossOf, stalls_above: StallsAbove = lambda arm: math.inf) -> Stages:
    """The stages of a study. Raises UnfinishedError where one lacks a result that decides the next, and StudyError."""
    rungs = *study.smaller, study
    refuse_unlike(rungs, plan)
    tuned = yield from _tuned(rungs, plan, losses, stalls_above)
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
"""A rung with its arms at their best settings, and how these were found."""


def _tuned(
    rungs: Sequence[Study], plan: MakePlan, losses: LossOf, stalls_above: StallsAbove
) -> Generator[Stage, Sequence[str], Sequence[Tried]]:
    """All arms of all rungs are tuned at once, round by round; arms that need others after those, so that they start
    from, or are taught by, the best settings. A length has rates of its own too: the best of a long run may not even
    train a short one."""
    tried: list[Tried] = [(rung, ()) for rung in rungs]
    rounds = count(1)
    for needy in (False, True):
        jobs = [[_Job(rung, arm) for arm in rung.arms if rung.tune and bool(arm.sources) == needy] for rung, _ in tried]
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
            found = (Tuning(job.arm.name, tuple(job.passes)) for job in own)
            tried[place] = replace(rung, arms=tuple(arms)), (*tunings, *found)
    return tried


def _needed(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Plans that others depend on."""
    return tuple(sources for plan in plans if (sources := plan.sources()).arms)


def _trials(rung: Study, at: Pass, jobs: Sequence[_Job]) -> Study:
    """A study whose arms are what the jobs want to try next, with the seeds of their pass and its share of the budget,
    and what they need, whole."""
    arms = [replace(arm, share=at.fraction) for job in jobs if job.study is rung and job.at == at for arm in job.arms()]
    needed = {name for arm in arms for name in arm.sources}
    sections = rung.sections.model_copy(update={"seeds": at.seeds, "tune": None, **dict.fromkeys(UNTUNED)})
    first, *others = rung.arms
    # Without seeds the baseline is not trained: it is what the others are matched with.
    baseline = first if first.name in needed else replace(first, seeds=())
    sources = [arm for arm in others if arm.name in needed]
    return replace(rung, sections=sections, arms=(baseline, *sources, *arms), reads="tuning")


def propose(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls = lambda loss: False) -> Batches:
    """Batches of settings to try of one arm. It is sent the losses of each batch, and returns a `Tuned`.

    The same losses always lead to the same settings, so that a tuning that was interrupted is gone through again from
    the store. `legal` says whether an arm can be built with settings that the study did not list itself.
    """
    return (grid if spec.is_grid else sampled)(spec, space, legal, stalls)


class _Job:
    """Tuning one arm of one rung, pass by pass."""

    def __init__(self, study: Study, arm: Arm) -> None:
        if study.tune is None:
            raise ValueError("the study tunes nothing")
        self.study, self.arm, self.spec = study, arm, study.tune
        self.passes: list[TuningPass] = []
        self._stalled_above = math.inf
        self._begin(self.spec.space_around(arm.train.lr))

    @property
    def at(self) -> Pass:
        """The pass that it is at."""
        return self.spec.passes[len(self.passes)]

    @property
    def is_done(self) -> bool:
        """A coarse pass of which every run diverged leaves nothing to refine."""
        return len(self.passes) == len(self.spec.passes) or any(math.isinf(each.tuned.least) for each in self.passes)

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
        """The runs of the last batch are done."""
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
