"""Promote the best trials of a search to an ordinary study, with fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import SHIPPED
from ablate.study.yamlfile import StudyMap
from ablate.wings.promoting import confirming, write_study
from ablate.wings.search.asking import middle, repaired
from ablate.wings.search.ranking import best_first
from ablate.wings.search.search import Search
from ablate.wings.search.search_axes import AnyAxis, Choice, label
from ablate.wings.search.search_document import BASE_RATE, scores_of
from ablate.wings.search.search_space import Params, SearchSpace, is_listed, number_at, spread_of, values_of
from ablate.wings.search.trial_runner import StudyTrialRunner
from store.documents.tuning import RATE
from zoo.settings.edits import Edits

SEEDS = 3


@dataclass(frozen=True)
class Promoted:
    """A study of the best trials. path: its file. unlike: trials without a counterpart at another scale, by scale."""

    path: Path
    unlike: Mapping[str, tuple[str, ...]]


def promote(lab: StudyTrialRunner, search: Search, count: int) -> Promoted | None:
    """Write the best trials as a study; None if no trial differs from the base in more than its rate. Seeds of trials
    start at 1000, those of an ordinary study at 0.

    At this scale the arms have the rates that the search found, and the base its tuned rate. At the study's other
    scales, sizes keep their ratio to the base's, and every arm tunes its rate. A scale at which a trial has no
    counterpart is left out.
    """
    trials = search.study.get_trials(deepcopy=False)
    params: dict[str, Params] = {}
    known = {lab.study.arms[0].identity}  # without rates: with tuned rates, arms that differ only in them are the same
    for number in best_first(scores_of(search.study, search.done), list(lab.spec.objectives.values())):
        identity = lab.space.arm("", _without_rate(trials[number].params)).identity
        if len(params) < count and identity not in known:
            known.add(identity)
            params[f"trial_{number}"] = trials[number].params
    if not params:
        return None
    arms = {name: _nested(lab.space.written(lab.space.settings(_without_rate(of)))) for name, of in params.items()}
    question = f"Do the best trials of the search {lab.study.name} hold with fresh seeds?"
    comment = f"The best trials of a search, at scale {lab.study.scale}, with seeds that the search did not use."
    document = confirming(lab.study, question, arms, SEEDS)
    scales, unlike = _scales(lab, params, dict(document.get("scales") or {}))
    # Nothing is tuned at this scale: the search found the trials' rates, and tuned the base's separately.
    rate = search.study.user_attrs.get(BASE_RATE)
    given = {} if rate is None else {RATE: float(f"{rate:.6g}")}
    given |= {f"arms.{name}.{RATE}": lab.space.settings(of)[RATE] for name, of in params.items() if RATE in of}
    tune = {"carried": f"the search {lab.study.name}, at this scale"}
    scales[lab.study.scale] = {**scales.get(lab.study.scale, {}), **given, "tune": tune}
    path = write_study(promoted_path(lab.study), comment, {**document, "scales": scales})
    return Promoted(path, unlike)


def promoted_path(study: Study) -> Path:
    """`<study>_promoted.yaml` beside the study, so that relative paths stay valid; in the current folder if the study
    ships with the package."""
    is_own = study.path is not None and not study.path.resolve().is_relative_to(SHIPPED)
    return (study.path.parent if is_own and study.path else Path.cwd()) / f"{study.name}_promoted.yaml"


def _without_rate(params: Params) -> Params:
    return {path: value for path, value in params.items() if path != RATE}


def _scales(
    lab: StudyTrialRunner, params: Mapping[str, Params], scales: StudyMap
) -> tuple[StudyMap, dict[str, tuple[str, ...]]]:
    """Other scales with the arms' settings there, and the trials without counterpart, by scale."""
    kept, unlike = dict(scales), dict[str, tuple[str, ...]]()
    for scale in scales:
        if scale == lab.study.scale:
            continue
        there = load_study(lab.study, scale)
        if there.search is None:
            continue
        space = SearchSpace(there.builder, there.search.space)
        found = {name: at_scale(lab.space, space, _without_rate(of)) for name, of in params.items()}
        if missing := tuple(name for name, edits in found.items() if edits is None):
            unlike[scale] = missing
            del kept[scale]
            continue
        kinds = {
            name: {path: value for path, value in (edits or {}).items() if path != RATE}
            for name, edits in found.items()
        }
        arms = {f"arms.{name}": _nested(edits) for name, edits in kinds.items()}
        kept[scale] = {**scales[scale], **arms}
    return kept, unlike


def _nested(settings: Edits) -> StudyMap:
    """Merge settings of a part with its kind, as a study sets no path twice: `block.ffn: {kind: gelu, d_ff: 4x}`."""
    edits: StudyMap = {}
    for path, value in settings.items():
        part = next((part for part in edits if path.startswith(f"{part}.")), None)
        if part is None:
            edits[path] = deepcopy(value)  # a shared list would become an alias in YAML
            continue
        kind = edits[part]
        whole = kind if isinstance(kind, dict) else {"kind": kind}
        edits[part] = {**whole, path.removeprefix(f"{part}."): value}
    return edits


def at_scale(here: SearchSpace, there: SearchSpace, params: Params) -> Edits | None:
    """Settings transferred to another scale; None if its space has no legal settings near them.

    A size that the base has too keeps its ratio to the base's, such as 1.5 times the base's width. Other settings stay.
    """
    moved: Params = {}
    for path, axis in there.axes.items():
        value = _moved(here, there, path, axis, params)
        if value is not None and there.has(moved, path):
            moved[path] = value
    whole = there.draw(lambda path, axis: moved.get(path, middle(axis)))

    def distances(settings: Params) -> dict[str, float]:
        try:
            there.arm("", settings)
        except StudyError as error:
            return {"": float(len(error.problems))}
        return {}

    legal = repaired(there, whole, distances) if distances(whole) else whole
    return None if legal is None else there.written(there.settings(legal))


def _moved(here: SearchSpace, there: SearchSpace, path: str, axis: AnyAxis, params: Params) -> Any:
    """The value on an axis of `there` that corresponds to the one here; None if the trial or an axis lacks it."""
    if path not in params or path not in here.axes:
        return None
    value = here.axes[path].value(params[path])
    bases = [number_at(space.base.model, space.base.train, path) for space in (here, there)]
    if isinstance(value, int | float) and not isinstance(value, bool) and bases[0] and bases[1]:
        return _nearest(axis, value / bases[0] * bases[1])
    if isinstance(axis, Choice):
        return params[path] if params[path] in map(label, axis.choice) else None
    return _nearest(axis, params[path])


def _nearest(axis: AnyAxis, value: float) -> Any:
    """The value of an axis nearest to a number."""
    if isinstance(axis, Choice):
        numbers = [choice for choice in axis.choice if isinstance(choice, int | float)]
        return min(numbers, key=lambda number: abs(number - value), default=None)
    if is_listed(axis):
        return min(values_of(axis), key=lambda number: abs(number - value))
    return min(max(value, spread_of(axis).low), spread_of(axis).high)
