"""Cards of the atlas: one per claim, and one for the question of each study that has a result or states no claim.

A card has a row for each recorded result that bears on it, and for the smaller rungs of their ladders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ablate.wings.catalogue.parts import parts_of
from ablate.wings.results.document import RecordedArm, RecordedInterval, RecordedResult, distance, outcome_at
from ablate.wings.results.recorded import size_and_length
from ablate.wings.science.sources import StatedStudy, year_of
from ablate.wings.science.stated import size, statement
from ablate.wings.science.topics import topics_of
from reports.judge.reading.documents import Inputs
from reports.judge.verdicts import Outcome
from reports.page.wording import words
from reports.page.wording.arm_words import pair_note, spelled
from reports.page.wording.training_words import inputs
from store.documents import StudyClaim
from store.documents.claims import COSTS, LOSS

Standing = Outcome | Literal["depends", "not run", "needs a GPU", "measured"]
"""Outcome of a claim over all its results: `depends` if it holds or agrees in some, and not in others. `measured` marks
a question without a claim, `needs a GPU` one without a result that small models cannot answer."""
STANDINGS: tuple[Standing, ...] = (
    "does not hold",
    "depends",
    "differs",
    "holds",
    "agrees",
    "cannot tell",
    "measured",
    "not tested",
    "not run",
    "needs a GPU",
)
SAID = {"differs": "differs at our size", "agrees": "agrees at our size", "not tested": "run but not judged"}
"""Standings as readers see them, where the name alone says too much or too little."""
UNSTATED = "the recorded result does not state this claim"


@dataclass(frozen=True)
class CardRow:
    """A result for display: its effect with the interval, and the reason for the outcome."""

    label: str
    conditions: str
    effect: RecordedInterval | None
    outcome: str
    """Outcome of the claim, or verdict on the arm."""
    reason: str = ""
    seeds: tuple[float, ...] = ()
    """Paired differences by seed."""
    note: str = ""
    """What the effect must not be read without: `both worse than bigrams`."""
    distance: str = ""
    """Where the outcome stands, if not at the sizes of the claim's source: ` at 56 k parameters`."""

    @property
    def told(self) -> str:
        """The outcome, with the size at which it stands: `differs at 56 k parameters (published at 220 M)`."""
        return self.outcome + self.distance if self.distance else SAID.get(self.outcome, self.outcome)


@dataclass(frozen=True)
class Card:
    """A claim or question with all its recorded results."""

    key: str
    study: str
    title: str
    question: str
    claim: StudyClaim | None
    source: str
    topics: tuple[str, ...]
    parts: frozenset[str]
    """Parts of the arms in question, by setting and kind."""
    standing: Standing
    rows: tuple[CardRow, ...]
    results: tuple[RecordedResult, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Arms or factors that its claim is about; empty for a question."""
        claim = self.claim
        return (*claim.order, *filter(None, (claim.arm, claim.against))) if claim else ()

    @property
    def brief(self) -> str:
        """The title, with arms under their names, for where there is no room for their labels."""
        return statement(_in_words(self.claim, {})) if self.claim else self.title

    @property
    def year(self) -> int | None:
        return year_of(self.source)

    @property
    def entry(self) -> str:
        """Id of its claim in the handbook; empty if it has none."""
        return (self.claim.claim if self.claim else None) or ""

    @property
    def told(self) -> str:
        """The standing, with the sizes at which it stands; the published ones are said once."""
        at = list(dict.fromkeys(row.distance for row in self.rows if row.outcome == self.standing))
        far = " and".join([*(each.partition(" (")[0] for each in at[:-1]), *at[-1:]])
        return self.standing + far if far else SAID.get(self.standing, self.standing)

    @property
    def is_ratio(self) -> bool:
        """Whether effects are ratios of costs."""
        return self.claim is not None and self.claim.measure in COSTS

    @property
    def published(self) -> float | None:
        """The published effect with its sign, or as a ratio; None if the claim names no size."""
        claim = self.claim
        if claim is None or claim.by is None or claim.expect not in ("better", "worse"):
            return None
        if self.is_ratio:
            return 1 / claim.by if claim.expect == "better" else claim.by
        falls = (claim.expect == "better") == (claim.measure == LOSS)
        return -claim.by if falls else claim.by

    @property
    def published_words(self) -> str:
        """`by 0.02 nats`, `within 0.01`; empty if the claim names no size."""
        if self.claim is None or not self.claim.by:
            return ""
        return f"{'within' if self.claim.expect == 'same' else 'by'} {size(self.claim)}"

    @property
    def costs(self) -> str:
        """Costs of its arm that differ measurably, in the first result that has any: `training time 1.10×`."""
        named = {self.claim.arm} if self.claim else set()
        for result in self.results:
            arms = [arm for arm in result.arms if arm.costs and (not named or arm.name in named)]
            if arms and (said := "; ".join(filter(None, (_costs_of(arm, len(arms) > 1) for arm in arms)))):
                return said
        return ""


def _costs_of(arm: RecordedArm, named: bool) -> str:
    told = [
        f"{cost.label.replace(' per token', '')} {cost.ratio:.2f}×"
        for cost in arm.costs.values()
        if abs(cost.ratio - 1) > 0.02 and not (cost.low is not None and cost.low <= 1 <= (cost.high or cost.low))
    ]
    return (f"{arm.name}: " if named and told else "") + ", ".join(told)


def cards(results: Sequence[RecordedResult], studies: Sequence[StatedStudy]) -> tuple[Card, ...]:
    """All cards, in the order of `STANDINGS`, then by study."""
    stated = {study.name: study for study in studies}
    recorded: dict[str, list[RecordedResult]] = {}
    for result in results:
        recorded.setdefault(result.study, []).append(result)
    found = [
        card
        for name in dict.fromkeys((*recorded, *stated))
        for card in _cards_of(name, recorded.get(name, ()), stated.get(name))
    ]
    return tuple(sorted(found, key=lambda card: (STANDINGS.index(card.standing), card.study)))


def _cards_of(name: str, results: Sequence[RecordedResult], study: StatedStudy | None) -> Iterator[Card]:
    claims: dict[str, StudyClaim] = {}
    for claim in (*(each for result in results for each in result.claims), *(study.claims if study else ())):
        kept = claims.setdefault(_identity(claim), claim)
        # what the study's file says of the source today may not have been known when the result was recorded
        today = {name: value for name in ("claim", "sizes") if (value := getattr(claim, name))}
        claims[_identity(claim)] = kept.model_copy(update=today)
    if results or not claims:
        yield _question(name, results, study)
    for number, claim in enumerate(claims.values(), 1):
        yield _claim(f"{name}-{number}", name, claim, results, study)


def _identity(claim: StudyClaim) -> str:
    """Key of a claim without its published size, which may differ between scales."""
    return "|".join(map(str, (claim.arm, claim.against, claim.expect, claim.order, claim.measure)))


def _edits(results: Sequence[RecordedResult], study: StatedStudy | None) -> Mapping[str, Mapping[str, object]]:
    known = {arm.name: arm.edits for result in results for arm in result.arms}
    return {**(study.arms if study else {}), **known}


def _parts(arms: Iterable[str], results: Sequence[RecordedResult], study: StatedStudy | None) -> frozenset[str]:
    """Parts that these arms do not share with all others."""
    edits, own = _edits(results, study), frozenset[str]()
    for name in arms:
        recorded = [arm for result in results if (arm := result.arm(name)) is not None]
        own |= frozenset(part for arm in recorded for part in arm.parts) or parts_of(edits.get(name, {}))
    return own


def _question(name: str, results: Sequence[RecordedResult], study: StatedStudy | None) -> Card:
    """The card of a study's question: its arms beside the baseline, or its effects."""
    edits = _edits(results, study)
    question = results[0].question if results else study.question if study else name
    source = (results[0].citation if results else study.citation if study else "") or ""
    return Card(
        key=name,
        study=name,
        title=question,
        question=question,
        claim=None,
        source=source,
        topics=topics_of(edits.values()),
        parts=_parts(edits, results, study),
        standing="measured" if results else _unanswered(study),
        rows=tuple(row for result in results for row in _arm_rows(result)),
        results=tuple(results),
    )


def _arm_rows(result: RecordedResult) -> Iterator[CardRow]:
    """Effects, or arms against the baseline; the first row has the conditions of all."""
    compared = [arm for arm in result.arms if arm.name != result.baseline and not result.effects]
    every = [arm.name for arm in result.arms]
    rows = [
        *(CardRow(each.name, "", each.difference, each.verdict, note=_note(result, every)) for each in result.effects),
        *(
            CardRow(
                f"{arm.name} against {result.baseline}",
                "",
                arm.difference,
                arm.verdict,
                seeds=paired(result, arm),
                note=_note(result, (arm.name, result.baseline)),
            )
            for arm in compared
        ),
    ]
    for row in rows[:1]:
        yield replace(row, conditions=f"{result.scale}: {conditions_of(result)}")
    yield from rows[1:]


def _claim(
    key: str, name: str, claim: StudyClaim, results: Sequence[RecordedResult], study: StatedStudy | None
) -> Card:
    edits = _edits(results, study)
    arms = [*claim.order, *filter(None, (claim.arm, claim.against))]
    rows = tuple(row for result in results for row in _claim_rows(claim, result))
    return Card(
        key=key,
        study=name,
        title=statement(_in_words(claim, study.labels if study else {})),
        question=results[0].question if results else study.question if study else "",
        claim=claim,
        source=claim.source or (study.citation if study else "") or "",
        topics=topics_of(edits[each] for each in arms if edits.get(each)),
        parts=_parts(arms, results, study),
        standing=_standing(rows) if results else _unanswered(study),
        rows=rows,
        results=tuple(results),
    )


def _in_words(claim: StudyClaim, labels: Mapping[str, str]) -> StudyClaim:
    """The claim with what its arms are called in words."""

    def said(name: str) -> str:
        return labels.get(name) or spelled(name).replace("_", " ")

    named = {key: said(name) for key in ("arm", "against") if (name := getattr(claim, key))}
    return claim.model_copy(update={**named, "order": tuple(map(said, claim.order))})


def _claim_rows(claim: StudyClaim, result: RecordedResult) -> Iterator[CardRow]:
    """Rows of the smaller rungs of the result's ladder, then the result's own row."""
    judged = next((each for each in result.claims if _identity(each) == _identity(claim)), None)
    arm = result.arm(claim.arm) if claim.arm else None
    on_loss = claim.measure == LOSS and arm is not None and claim.against in (None, result.baseline)
    compared = claim.order or (claim.arm or result.baseline, claim.against or result.baseline)
    note = _note(result, compared) if claim.measure == LOSS and claim.expect != "stalls" else ""
    for rung in result.rungs if on_loss else ():
        if arm is not None and arm.name in rung.differences:
            at = size_and_length(rung.parameters, rung.tokens_per_parameter)
            yield CardRow(f"{result.scale}, {rung.name}", at, rung.differences[arm.name], "not judged", note=note)
    seeds = paired(result, arm) if on_loss and arm else ()
    if judged is not None:
        digits = words.decimals(judged.seen)
        unseen = judged.seen and judged.outcome == "cannot tell"
        seen = f" (smallest detectable: {judged.seen:.{digits}f})" if unseen else ""
        reason = f"{judged.reason}{seen}{'; stated or changed after a result' * judged.edited}"
        size = result.setting.parameters
        outcome = outcome_at(judged.outcome, size, claim.sizes)
        far = distance(outcome, size, claim.sizes)
        yield CardRow(result.scale, conditions_of(result), judged.effect, outcome, reason, seeds, note, far)
    elif any(name in {each.name for each in result.arms} for name in (claim.arm, *claim.order)):
        effect = arm.difference if on_loss and arm else None
        yield CardRow(result.scale, conditions_of(result), effect, "not tested", UNSTATED, seeds, note)


def _note(result: RecordedResult, arms: Iterable[str]) -> str:
    return pair_note(arms, result.losses, result.references_by_arm)


def paired(result: RecordedResult, arm: RecordedArm) -> tuple[float, ...]:
    """Differences of an arm from the baseline, by seed."""
    base = result.arm(result.baseline)
    known = base.seeds if base else {}
    return tuple(loss - known[seed] for seed, loss in arm.seeds.items() if seed in known)


def _unanswered(study: StatedStudy | None) -> Standing:
    return "needs a GPU" if study and study.needs else "not run"


def _standing(rows: Sequence[CardRow]) -> Standing:
    outcomes = {row.outcome for row in rows}
    if outcomes & {"holds", "agrees"} and outcomes & {"does not hold", "differs"}:
        return "depends"
    ranked: tuple[Standing, ...] = ("does not hold", "holds", "differs", "agrees", "cannot tell")
    return next((each for each in ranked if each in outcomes), "not tested")


def conditions_of(result: RecordedResult) -> str:
    """`56 k parameters · 9.7 tokens per parameter · 5 seeds · English prose · vocabulary 1,024 · context 128`."""
    setting = result.setting
    contexts = () if setting.context is None else (setting.context,)
    read = Inputs(tuple(filter(None, setting.data.split(", "))), setting.vocabularies, contexts)
    length = size_and_length(setting.parameters, setting.tokens_per_parameter)
    stands = (f"baseline {result.standing}",) if result.standing else ()
    return " · ".join((length, f"{setting.seeds} seeds", *inputs(read), *stands))
