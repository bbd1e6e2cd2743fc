"""Planning one study on one machine: its stages, and the outcome that results in the store lead to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ablate.machine.numerics import Numerics
from ablate.planning.campaign import CampaignOutcome, Stages, campaign
from ablate.planning.known_rates import Starts, search_starts
from ablate.planning.make_plan import Identify, make_plan
from ablate.planning.plan import ArmPlan, Clock, Plan
from ablate.study.study import Study
from ablate.training.objectives.next_token import NextToken
from store import Store
from store.documents import TextMeta


@dataclass(frozen=True)
class Foreseen:
    """The outcome that the results in a store lead to. If tuning is unfinished, arms have the settings of the study
    itself."""

    outcome: CampaignOutcome
    tuned: bool = True
    """Whether all tuning is done."""
    tuning: tuple[tuple[ArmPlan, bool], ...] = ()
    """Runs of an unfinished tuning, up to the first stage without all results: (arm tried, whether the run has a
    result). Runs of arms that others depend on are left out."""
    starts: Starts = field(default_factory=dict)
    """Where the searches of an unfinished tuning begin, on the last rung."""


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
        return search_starts(study, plan, self.store, keep=self.keeps_starts)

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
