"""Where a study's losses will probably stand among n-gram models of its text, from results of like size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import fmean

import reports
from ablate.api.recorded import RESULTS
from ablate.planning.plan import ArmPlan, Plan
from ablate.training.objectives.next_token import NextToken
from reports.page.wording.length_words import prefixed
from store import Store
from store.documents import JsonObject, References, TextMeta
from store.documents.references import counted_tokens
from store.documents.study import UNJUDGED
from store.like_runs import ALIKE, STUDIES_READ


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
    """Return that of the stored or recorded baseline nearest in size and length to the plan's; None if none is within a
    factor of two in both, or the study predicts no text."""
    base = next(arm for arm in plan.arms if arm.name == plan.study.baseline)
    if plan.study.scale in UNJUDGED or base.train.objective != NextToken():
        return None
    found = [*_stored(base, store), *_recorded(base)]
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
            yield _standing(source, arm.parameters_non_embedding, arm.length.tokens, fmean(losses), known.references)


def _recorded(base: ArmPlan) -> Iterator[LikelyStanding]:
    """Baselines of the shipped results on text of the same source, under as many tokens and at the same context."""
    for result in map(reports.read_result, sorted(RESULTS.glob("*@*.json"))):
        setting, loss = result.setting, result.losses.get(result.baseline)
        alike = (setting.data, setting.vocabularies, setting.context) == (
            base.data.source,
            (base.identity.vocab_size,),
            base.train.context,
        )
        if alike and loss is not None and result.references is not None:
            size = math.sqrt(math.prod(setting.parameters))
            source = f"{result.baseline} of {result.name}"
            yield _standing(source, round(size), result.references.tokens, loss, result.references)


def _standing(source: str, parameters: int, tokens: float, loss: float, known: References) -> LikelyStanding:
    return LikelyStanding(source, parameters, round(tokens), loss, known.bigram, known.standing(loss))
