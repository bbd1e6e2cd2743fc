"""Prospects of a study before training: the difference that it will probably detect, or why it will judge nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from statistics import fmean
from typing import Self

from ablate.planning.campaign import CampaignOutcome
from ablate.planning.foresight import Foresight, detectable_lines, foresight, seeds_line, unjudged
from ablate.planning.plan import ArmPlan, Plan
from ablate.planning.study_document import study_document
from ablate.study.study import Study
from reports.judge.sentences import prefixed
from store import Store
from store.documents import JsonObject, References, StudyDocument, TextMeta
from store.documents.data import counted_tokens
from store.documents.study import UNJUDGED
from store.extensions import modules_of
from store.store import ALIKE, STUDIES_READ

# Where a study's losses will probably stand among n-gram models of its text, from results of like size.


@dataclass(frozen=True)
class LikelyStanding:
    """A baseline of like size and length that read the same kind of text: its non-embedding parameters, the training
    tokens that it read, its loss and that of bigrams in nats per token, and where it stands."""

    source: str
    parameters: int
    tokens: int
    loss: float
    bigram: float
    standing: str

    @classmethod
    def of(cls, source: str, parameters: int, tokens: float, loss: float, known: References) -> Self:
        return cls(source, parameters, round(tokens), loss, known.bigram, known.standing(loss))

    def document(self) -> JsonObject:
        return asdict(self)

    @property
    def line(self) -> str | None:
        """A warning if it ended worse than bigrams."""
        if self.loss < self.bigram:
            return None
        size = f"{prefixed(self.parameters)} parameters, {prefixed(self.tokens)} tokens"
        return (
            f"will probably end worse than a bigram table of the text, where differences say little: {self.source}"
            f" ({size}) ended at {self.loss:.3f} nats per token, bigrams at {self.bigram:.3f}"
        )


def likely_standing(plan: Plan, store: Store) -> LikelyStanding | None:
    """Return that of the stored baseline, or of one that wings know, nearest in size and length to the plan's; None if
    none is within a factor of two in both, or the study predicts no text."""
    base = next(arm for arm in plan.arms if arm.name == plan.study.baseline)
    if plan.study.scale in UNJUDGED or base.train.objective.kind != "next_token":
        return None
    found = [*_stored(base, store), *(each for wing in modules_of(__name__) for each in wing.standings(base))]
    near = [each for each in found if max(_factors(base, each)) <= ALIKE]
    return min(near, key=lambda each: math.prod(_factors(base, each)), default=None)


def _factors(base: ArmPlan, found: LikelyStanding) -> tuple[float, float]:
    """Factors by which the two differ in size and in length, at least 1."""
    pairs = ((found.parameters, base.length.parameters), (found.tokens, base.length.tokens))
    one, other = (max(a, b) / max(1, min(a, b)) for a, b in pairs)
    return one, other


def _stored(base: ArmPlan, store: Store) -> Iterator[LikelyStanding]:
    """Baselines of stored studies of the same corpus."""
    folder = store.data(base.identity.digest)
    meta = folder.read() if folder.is_known else None
    if not isinstance(meta, TextMeta):
        return
    for document in islice(store.readable_studies(), STUDIES_READ):
        arm = document.baseline_arm
        tokens = counted_tokens(round(arm.length.tokens), meta.tokens.train)
        known = folder.read_references(base.train.context, tokens) if arm.data == base.identity.digest else None
        outcomes = [store.outcome(run.digest) for run in arm.runs]
        losses = [each.loss for each in outcomes if each and each.status == "finished" and each.loss is not None]
        if known and losses:
            source = f"{arm.name} of {document.name} at {document.scale}"
            yield LikelyStanding.of(
                source, arm.parameters_non_embedding, arm.length.tokens, fmean(losses), known.references
            )


@dataclass(frozen=True)
class Prospects:
    """Prospects of a planned study, given a store. asked: the study as it was read, tuning included."""

    outcome: CampaignOutcome
    store: Store
    asked: Study

    @cached_property
    def foresight(self) -> Foresight:
        """The expected noise, and where it was measured."""
        return foresight(self.outcome.plan, self.store, self.asked.tune)

    @cached_property
    def judged(self) -> JudgedBefore:
        """Earlier judgements of this study's question, from the store's ledgers."""
        if not self.compares_arms or not self.store.ledgers():
            return JudgedBefore.never()
        return JudgedBefore.of(study_document(self.outcome), self.store)

    @property
    def compares_arms(self) -> bool:
        """Whether arms are compared one by one; False for a search and a factorial design."""
        return not (self.asked.is_search_alone or self.asked.factors)

    @property
    def unjudged(self) -> str | None:
        """Why the study as planned will have no verdicts; None if it may have some."""
        seeds = {run.seed for run in self.outcome.plan.runs}
        repeated = " ".join(self.judged.lines(seeds)) if self.judged.repeats_all else ""
        return self.without_verdicts or seeds_line(self.outcome.plan) or repeated or None

    @property
    def without_verdicts(self) -> str | None:
        """Why the study would have no verdicts with any seeds; None if it may have some."""
        return unjudged(self.outcome.plan)

    @cached_property
    def detectable(self) -> float | None:
        """The difference in nats that the study detects with 80 % power; None if nothing is compared or judged."""
        if self.unjudged or not self.compares_arms:
            return None
        return self.foresight.detectable(self.outcome.plan, self.judged.level)

    def seeds(self, difference: float) -> int | None:
        """The fewest fresh seeds that detect this difference in nats with 80 % power; None if no number does."""
        if self.without_verdicts or not self.compares_arms:
            return None
        return self.foresight.seeds(self.outcome.plan, difference, self.judged.fresh)

    @cached_property
    def standing(self) -> LikelyStanding | None:
        """Where the losses will probably stand among n-gram models of the text; None if no result tells."""
        return likely_standing(self.outcome.plan, self.store)

    def lines(self) -> Iterator[str]:
        """Lines on a scale that is too small for the question; on the detectable difference, on seeds that give no
        verdict, or on why nothing is judged; and on losses that will probably be worse than those of bigrams."""
        if self.asked.shortfall:
            yield self.asked.shortfall
        yield from detectable_lines(self.detectable, self.foresight, tuned=self.asked.tune is not None)
        if reason := self.unjudged:
            yield reason
        else:
            yield from self.judged.lines({run.seed for run in self.outcome.plan.runs})
        if self.standing and self.standing.line:
            yield self.standing.line


@dataclass(frozen=True)
class JudgedBefore:
    """Earlier judgements of a question. seeds: all seeds whose results were judged or shown. level: the level of the
    planned judgement. fresh: the level of a judgement on other seeds. repeats: whether the plan has some of these seeds
    in another set, so that some comparisons have no verdict. repeats_all: whether no comparison has a verdict."""

    seeds: frozenset[int]
    level: float
    fresh: float
    repeats: bool = False
    repeats_all: bool = False

    @classmethod
    def never(cls) -> JudgedBefore:
        """A question that was never judged."""
        from reports.judge.noise.power import ALPHA, FIRST_SHARE  # noqa: PLC0415 (a run needs no scipy)

        return cls(frozenset(), FIRST_SHARE * ALPHA, FIRST_SHARE * ALPHA)

    @classmethod
    def of(cls, study: StudyDocument, store: Store) -> JudgedBefore:
        """Earlier judgements of a planned study's question, by any study of the store."""
        from reports.judge.findings.judging import (  # noqa: PLC0415 (a first plan needs none)
            as_one,
            difference_claim,
            differences,
            ledger_test,
            looks_at,
        )
        from reports.judge.noise.power import ALPHA  # noqa: PLC0415 (as above)
        from reports.judge.statistics.ledger import share  # noqa: PLC0415 (as above)

        tests = [ledger_test(study, arm, study.baseline_arm, 1.0) for arm in study.arms if arm.name != study.baseline]
        own = store.read_ledger(study.name)
        elsewhere = [store.read_ledger(name) for name in store.ledgers() if name != study.name]
        found, _ = as_one(tests, own, elsewhere)
        if not found:
            return cls.never()
        seeds = frozenset(seed for record in found for test in record.tests for seed in test.seen)
        judged = differences(tests, {}, own, elsewhere=elsewhere)
        again = [difference_claim(test) not in judged for test in tests]
        # Tests that mix judged seeds with others are no new look; tests on a seed that no judgement had are one.
        unseen = 1 + max(seeds, default=0)
        fresh = [test.model_copy(update={"seeds": (unseen,)}) for test in tests]
        level, later = (ALPHA * share(looks_at(each, own, elsewhere)) for each in (tests, fresh))
        return cls(seeds, level, later, repeats=any(again), repeats_all=all(again))

    def lines(self, planned: Set[int]) -> list[str]:
        """A warning if seeds that were shown are planned in another set, which gives no verdict."""
        if not self.repeats:
            return []
        fresh = max(self.seeds, default=-1) + 1
        return [
            f"{len(self.seeds & planned)} of these seeds were judged before: in another set they give no verdict. Fresh"
            f" seeds begin at {fresh}, and are judged at {100 * self.fresh:.2g} %, what is left of the 5 % for this"
            " question"
        ]
