"""Where the search for an arm's learning rate begins: where like arms' searches ended, if any are known.

Known rates are those that tuning bracketed in a study of the store, and those of the study's recorded result. If the
baseline's is known, every arm is tried at three rates at full length from the start: around its own known rate, or else
around the baseline's. If it is not known, every arm is searched from a grid, as arms of one study must be tuned alike.
In both cases the range is extended while the best rate lies at its edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, JsonValue, ValidationError

from ablate.planning.campaign import Starts
from ablate.planning.identity import run_identity, without_rate
from ablate.planning.plan import ArmPlan, Plan
from ablate.study.study import Study
from ablate.study.tune_spec import FINE, rates_times
from ablate.study.written import results_beside
from store import Store
from store.documents import JsonObject, StudyArm, StudyDocument, StudyTuning
from store.documents.tuning import RATE, SearchStart, StartsDocument, StudyRates, untuned
from store.errors import AblateError
from zoo.settings.identity import digest_of

LIKE = 2.0
"""Sizes, lengths and batches are alike within this factor: the best rate then moves less than the rates tried span."""
UNLIKE = ("lr", "batch", "context", "compile", "dtype", "validate_every")
"""Training settings that like arms may differ in."""


class KnownRatesError(AblateError):
    """A recorded result cannot be read."""


def search_starts(study: Study, plan: Plan, store: Store, *, keep: bool) -> Starts:
    """Where the searches of a study's arms begin; empty if they begin at grids.

    The answer depends on the store, in which other studies may end meanwhile. So that an interrupted search continues
    as it began, the answer is read from the study's folder if it was kept there.

    Args:
        plan: the plan of the study with its own learning rates.
        keep: write the answer to the study's folder: the search begins now.
    """
    if study.tune is None or not study.tune.known or study.tune.space is not None:
        return {}
    folder = store.study(study.name, study.scale)
    identities = {arm.name: _at_any_rate(arm) for arm in plan.arms}
    asked, kept = digest_of(identities), folder.read_starts()
    if kept is not None and asked in kept.searches:
        return kept.searches[asked]
    tuned = _tuned_before(folder.read(), identities)
    found = _found(study, plan, store) if tuned is None else tuned
    if keep:
        before = kept.searches if kept else {}
        folder.write_starts(StartsDocument(searches={**before, asked: dict(found)}))
    return found


def _at_any_rate(arm: ArmPlan) -> str:
    return digest_of(without_rate(run_identity(arm.runs[0].identity, arm.spec, arm.train)))


def _tuned_before(document: StudyDocument | None, identities: Mapping[str, str]) -> Starts | None:
    """Where the search of these very arms began, if the study's own document has it; None if it does not."""
    for arms, tunings in _rungs(document) if document else ():
        known = {arm.name: arm.identity_at_any_rate for arm in arms}
        # Documents of early versions have no such identities. Their searches began at grids.
        if tunings and (known == identities or not all(known.values())):
            return {each.arm: each.start for each in tunings if each.start is not None}
    return None


def _rungs(document: StudyDocument) -> Iterator[tuple[tuple[StudyArm, ...], tuple[StudyTuning, ...]]]:
    """Arms and tunings of each rung."""
    if not document.ladder:
        yield document.arms, document.tuning
    for rung in document.ladder:
        yield rung.arms, rung.tuning


class Earlier(NamedTuple):
    """A tuned arm of a study in the store."""

    study: StudyDocument
    arm: StudyArm
    tuning: StudyTuning

    @property
    def source(self) -> str:
        return f"{self.study.name}@{self.study.scale} in this store"


class KnownRate(NamedTuple):
    """A learning rate that tuning found, and where a search around it begins."""

    rate: float
    start: SearchStart

    @classmethod
    def around(cls, rate: float, arm: str, source: str) -> KnownRate:
        return cls(rate, SearchStart(rates=rates_times(rate, FINE), arm=arm, source=source))


def _found(study: Study, plan: Plan, store: Store) -> Starts:
    earlier = list(_earlier(store))
    known = {arm.name: _known(study, arm, earlier, store) for arm in plan.arms}
    first = known[plan.arms[0].name]
    if first is None:
        return {}
    like_first = KnownRate.around(first.rate, first.start.arm, first.start.source)
    return {name: (each or like_first).start for name, each in known.items()}


def _earlier(store: Store) -> Iterator[Earlier]:
    """Every arm in the store whose best rate was found between others, the newest first."""
    newest = sorted(store.readable_studies(), key=lambda each: (each.created, each.name, each.scale), reverse=True)
    for document in newest:
        for arms, tunings in _rungs(document):
            by_name = {arm.name: arm for arm in arms}
            for each in tunings:
                if list(each.chosen) == [RATE] and each.trains and not each.edges:
                    yield Earlier(document, by_name[each.arm], each)


def _known(study: Study, arm: ArmPlan, earlier: Sequence[Earlier], store: Store) -> KnownRate | None:
    """The rate of the same arm in the store, else of a like arm there, else of the study's recorded result."""
    identity = _at_any_rate(arm)
    for each in earlier:
        if each.arm.identity_at_any_rate == identity and (each.tuning.coarse or each.tuning.start):
            # Begin with the rates that it began with at full length: their runs are in the store.
            begun = each.tuning.rates[: len(FINE)]
            return KnownRate(each.tuning.rate, SearchStart(rates=begun, arm=each.arm.name, source=each.source))
    for each in earlier:
        if _is_like(study, arm, each, store):
            return KnownRate.around(each.tuning.rate, each.arm.name, each.source)
    return _recorded(study, arm)


def _is_like(study: Study, arm: ArmPlan, earlier: Earlier, store: Store) -> bool:
    """Whether an earlier arm has the same model, or the same edits in the same study, with settings of training that
    are alike."""
    known = earlier.arm
    if not (
        _are_near(_size(arm), known.parameters - known.parameters_embedding) and _are_near(arm.tokens, known.tokens)
    ):
        return False
    run, own = store.read_run(known.runs[0].digest), arm.runs[0].identity
    if run is None:
        return False
    is_same_place = earlier.study.name == study.name and _edits(known.edits) == _edits(arm.edits)
    return (
        (is_same_place or run.model == own.model)
        and _beside(run.train) == _beside(own.train)
        and _are_near(known.tokens / known.steps, arm.train.tokens)
    )


def _edits(edits: Mapping[str, JsonValue]) -> JsonObject:
    return {path: value for path, value in edits.items() if path != RATE}


def _beside(train: JsonObject) -> JsonObject:
    return {name: value for name, value in train.items() if name not in UNLIKE}


def _size(arm: ArmPlan) -> int:
    """With an untied head, which stored runs of earlier versions do not tell from the rest."""
    return arm.parameters - arm.parameters_embedding


def _are_near(one: float, other: float) -> bool:
    return max(one, other) <= LIKE * min(one, other)


class _Arm(BaseModel):
    name: str
    edits: dict[str, JsonValue]
    rate: float | None


class _Setting(BaseModel):
    parameters: tuple[float, float]
    tokens_per_parameter: tuple[float, float]
    context: int | None
    rates: str


class _Result(BaseModel):
    """The fields of a recorded result that tell at which rate an arm is best."""

    arms: tuple[_Arm, ...]
    setting: _Setting
    recorded: str


def _recorded(study: Study, arm: ArmPlan) -> KnownRate | None:
    """The rate of an arm in the study's recorded result at this scale, if it was tuned at a like size and length."""
    if study.path is None:
        return None
    path = results_beside(study.path) / f"{study.name}@{study.scale}.json"
    if not path.exists():
        return None
    try:
        found = _Result.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise KnownRatesError(f"{path} is no recorded result: remove it, or write `tune: {{known: false}}`") from error
    setting = found.setting
    same = [each for each in found.arms if each.name == arm.name and _edits(each.edits) == _edits(arm.edits)]
    is_like = (
        setting.rates != untuned(StudyRates(how="written", where=None))
        and setting.context == arm.train.context
        # results recorded by earlier versions count an untied head
        and any(
            all(_are_near(size, each) for each in setting.parameters)
            and all(_are_near(arm.length.tokens / size, each) for each in setting.tokens_per_parameter)
            for size in (_size(arm), arm.cost.params_inside)
        )
    )
    if not same or same[0].rate is None or not is_like:
        return None
    source = f"the recorded result of {study.name}@{study.scale}, {found.recorded}"
    return KnownRate.around(same[0].rate, arm.name, source)
