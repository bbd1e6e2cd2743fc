"""Stages of a study: tune every arm, then train its seeds, and further seeds with `seeds: auto`.

A stage consists of plans. Losses alone determine the next stage, so a study that was killed repeats the same stages
and finds their results in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ablate.machine.numerics import Numerics
from ablate.planning.make_plan import Identify, make_plan
from ablate.planning.plan import ArmPlan, Clock, Plan
from ablate.study.study import Study
from ablate.training.objectives.next_token import NextToken
from reports.judge.verdicts import looks
from store import Store
from store.documents import SearchStart, StudyLook, StudyTuning, TextMeta
from store.extensions import module_of, modules_of

Starts = Mapping[str, SearchStart]
"""Where the searches for arms' learning rates begin, by arm; empty if at grids."""
LossOf = Callable[[str], float | None]
"""Digest of a run → its validation loss; infinite if it diverged, None if it has no result."""
MakePlan = Callable[[Study], Plan]
StallsAbove = Callable[[ArmPlan], float]
"""Arm, whose data are prepared → loss above which a run of it has stalled; infinite if there is no threshold."""
StartsOf = Callable[[Study, Plan], Starts]
"""A study and its plan before tuning → where the searches of its arms begin."""


Axis = Literal["size", "length"]
"""Property in which a rung is smaller than the last: length if it has the same models, else size."""


@dataclass(frozen=True)
class RungStudy:
    """A study at one rung of its ladder; the whole study if it has no ladder."""

    plan: Plan
    tunings: tuple[StudyTuning, ...] = ()
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
    starts: StartsOf = lambda study, plan: {},
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
        if sources := needed(rung.plan for rung in outcome.rungs):
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


Tried = tuple[Study, tuple[StudyTuning, ...]]
"""A rung with its arms at their tuned settings, and the tuning that found them."""


def _tuned(
    rungs: Sequence[Study], plan: MakePlan, losses: LossOf, stalls_above: StallsAbove, starts: StartsOf
) -> Generator[Stage, Sequence[str], Sequence[Tried]]:
    """The rungs with their arms tuned, as far as the study asks for it."""
    if not any(rung.tune for rung in rungs):
        return [(rung, ()) for rung in rungs]
    if (wing := module_of(f"{__name__}.tuned")) is None:
        raise rungs[-1].error("tune", "this installation tunes nothing: write `off`")
    tried: Sequence[Tried] = yield from wing.tuned(rungs, plan, losses, stalls_above, starts)
    return tried


def needed(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Plans that others depend on."""
    return tuple(sources for plan in plans if (sources := plan.sources()).arms)


# Planning one study on one machine, and the outcome that results in the store lead to.


@dataclass(frozen=True)
class Foreseen:
    """The outcome that the results in a store lead to. tuning: up to the first stage without all results, and without
    runs of arms that others depend on. starts: on the last rung. See `ablate.running.study_plan.StudyPlan`."""

    outcome: CampaignOutcome
    tuned: bool = True
    tuning: tuple[tuple[ArmPlan, bool], ...] = ()
    starts: Starts = field(default_factory=dict)


@dataclass(frozen=True)
class Planner:
    """Plans a study. numerics: part of a run's identity, except for the dtype. clock: step times, for budgets in
    seconds. keeps_starts: write down where searches for learning rates begin, since they begin now."""

    study: Study
    store: Store
    numerics: Numerics
    identify: Identify
    clock: Clock | None
    keeps_starts: bool = False

    def plan(self, study: Study) -> Plan:
        found = self.numerics
        return make_plan(
            study, found.device, matmul=found.matmul, gpu=found.gpu, identify=self.identify, clock=self.clock
        )

    def stages(self) -> Stages:
        return campaign(self.study, self.plan, self.loss, self.stalls_above, self.starts)

    def starts(self, study: Study, plan: Plan) -> Starts:
        """Where the searches for the learning rates of a study's arms begin."""
        wing = module_of(f"{__name__}.starts")
        return {} if wing is None else wing.search_starts(study, plan, self.store, keep=self.keeps_starts)

    def stalls_above(self, arm: ArmPlan) -> float:
        """The loss above which a run of the arm has stalled, near the unigram loss; infinite unless the arm learns
        next-token prediction on a prepared text."""
        if not isinstance(arm.train.objective, NextToken):
            return math.inf
        meta = self.store.data(arm.identity.digest).read()
        return meta.references.stalled_above if isinstance(meta, TextMeta) else math.inf

    def loss(self, digest: str) -> float | None:
        """Final loss of a run: infinite if it diverged, None if it has no result."""
        found = self.store.outcome(digest)
        if found is None:
            return None
        return math.inf if found.loss is None else found.loss

    def foreseen(self) -> Foreseen:
        """The outcome that the results in the store lead to."""
        trials: dict[str, tuple[ArmPlan, bool]] = {}  # by digest: a later round may repeat runs of an earlier one
        for stage in self.stages():
            if stage.outcome is not None:
                return Foreseen(stage.outcome)
            if not stage.tunes:
                continue
            known = {run.digest: self.loss(run.digest) is not None for plan in stage.plans for run in plan.runs}
            for plan in stage.plans:
                needed = {arm.name for arm in plan.sources().arms}
                tried = (arm for arm in plan.arms if arm.name not in needed)
                trials |= {run.digest: (arm, known[run.digest]) for arm in tried for run in arm.runs}
            if not all(known.values()):
                break
        untuned = (stage.outcome for stage in replace(self, study=_without_tuning(self.study)).stages())
        outcome = next(filter(None, untuned))
        starts = self.starts(self.study, outcome.plan)
        return Foreseen(outcome, tuned=False, tuning=tuple(trials.values()), starts=starts)


def _without_tuning(study: Study) -> Study:
    sections = study.sections.model_copy(update={"tune": None})
    return replace(study, sections=sections, smaller=tuple(map(_without_tuning, study.smaller)))
