"""Prospects of a study before it is trained: the difference that it will probably see, or why it will judge nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ablate.api.judged_before import JudgedBefore
from ablate.planning.campaign import CampaignOutcome
from ablate.planning.foresight import Foresight, detectable_lines, foresight
from ablate.planning.study_document import study_document
from ablate.planning.unjudged import seeds_line, unjudged
from ablate.store import Store
from ablate.study.study import Study


@dataclass(frozen=True)
class Prospects:
    """Prospects of a planned outcome in a store. asked: the study as it was read, with its tuning."""

    outcome: CampaignOutcome
    store: Store
    asked: Study

    @cached_property
    def foresight(self) -> Foresight:
        """The noise that is expected, and where it was measured."""
        return foresight(self.outcome.plan, self.store, self.asked.tune)

    @cached_property
    def judged(self) -> JudgedBefore:
        """Earlier judgements of this study's question, from the store's ledgers."""
        if not self.compares_arms or not self.store.ledgers():
            return JudgedBefore.never()
        return JudgedBefore.of(study_document(self.outcome, aliases=self.store.aliases), self.store)

    @property
    def compares_arms(self) -> bool:
        """Whether arms are compared one by one, which a search and a factorial design do not."""
        return not (self.asked.is_search_alone or self.asked.screen)

    @property
    def unjudged(self) -> str | None:
        """Why the study will have no verdicts as it is planned; None where it may."""
        seeds = {run.seed for run in self.outcome.plan.runs}
        repeated = " ".join(self.judged.lines(seeds)) if self.judged.repeats_all else ""
        return self.without_verdicts or seeds_line(self.outcome.plan) or repeated or None

    @property
    def without_verdicts(self) -> str | None:
        """Why it would have none with any seeds; None where it may."""
        return unjudged(self.outcome.plan)

    @cached_property
    def detectable(self) -> float | None:
        """The difference in nats that the study will probably find (80 %); None where nothing is compared or judged."""
        if self.unjudged or not self.compares_arms:
            return None
        return self.foresight.detectable(self.outcome.plan, self.judged.level)

    def seeds(self, difference: float) -> int | None:
        """The fewest fresh seeds that find such a difference with 80 % probability; None where none do."""
        if self.without_verdicts or not self.compares_arms:
            return None
        return self.foresight.seeds(self.outcome.plan, difference, self.judged.fresh)

    def lines(self) -> Iterator[str]:
        """Lines on what the study will probably see, and on seeds that cannot judge it; or on why nothing is judged."""
        yield from detectable_lines(self.detectable, self.foresight, tuned=self.asked.tune is not None)
        if reason := self.unjudged:
            yield reason
        else:
            yield from self.judged.lines({run.seed for run in self.outcome.plan.runs})
