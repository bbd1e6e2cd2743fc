"""The rungs that a study lists, problems of the list, and checks of a plan that they are comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ablate.planning.campaign import Axis, axis
from ablate.planning.plan import Plan
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import Layer
from ablate.study.scales import NAMING, Rung, at
from ablate.study.study import Study
from ablate.study.yamlfile import Keys, YamlDocument
from ablate.wings.ladders.keys import is_share
from store.paths import NAME

RUNG_SECTIONS = ("base", "budget", "train")
"""Sections that may differ between the rungs of a ladder: losses on other text, or of other arms, would not form one
curve."""


def rungs(places: Sequence[Layer]) -> tuple[list[Rung], list[Problem]]:
    """Rungs, the compared one last, and problems of the ladder itself; its edits are checked with the sections that
    they edit. places: where a ladder may be; the first one counts, and null there means none."""
    around = ((place, at(place.document, place.root)) for place in places)
    first = (place for place, each in around if isinstance(each, Mapping) and "ladder" in each)
    where = next((replace(place, root=(*place.root, "ladder"), without=frozenset()) for place in first), None)
    if where is None or not isinstance(ladder := at(where.document, where.root), Mapping):
        return [], []
    document, root = where.document, where.root
    # Rungs that are neither edits nor a share are refused elsewhere.
    found = [
        Rung(name, replace(where, root=(*root, name))) if isinstance(each, Mapping) else Rung(name, share=each)
        for name, each in ladder.items()
        if isinstance(each, Mapping) or is_share(each)
    ]
    return found, list(_problems(document, root, ladder))


def _problems(document: YamlDocument, root: Keys, ladder: Mapping[str, Any]) -> Iterator[Problem]:
    for name, edits in ladder.items():
        where = ".".join(map(str, (*root, name)))
        if not NAME.fullmatch(str(name)):
            yield Problem(document.keys[*root, name], where, NAMING)
        for key in edits if isinstance(edits, Mapping) else ():
            if key.partition(".")[0] not in RUNG_SECTIONS:
                reason = f"a rung may edit only {', '.join(RUNG_SECTIONS[:-1])} and {RUNG_SECTIONS[-1]}"
                yield Problem(document.keys[*root, name, key], f"{where}.{key}", reason)
    if len(ladder) == 1:
        yield Problem(document.values[root], ".".join(map(str, root)), "a ladder needs two or more rungs")
    elif ladder and is_share(list(ladder.values())[-1]):
        last = (*root, list(ladder)[-1])
        reason = "arms are compared at the last rung, which must have the whole budget: end with, e.g., full: {}"
        yield Problem(document.values[last], ".".join(map(str, last)), reason)


ORDER: dict[Axis, str] = {"size": "list sizes from small to large", "length": "list lengths from short to long"}


def refuse_unlike(rungs: Sequence[Study], plan: Callable[[Study], Plan]) -> None:
    """Raise StudyError if the rungs do not form a ladder. Arms are compared on the last rung."""
    problems = list(_unlike(rungs)) or list(_falling(rungs, plan))
    if problems:
        raise StudyError(problems)


def _unlike(rungs: Sequence[Study]) -> Iterator[Problem]:
    last = rungs[-1]
    for rung in rungs[:-1]:
        if rung.budget.matched != last.budget.matched:
            unlike = f"rung {rung.rung} matches {rung.budget.matched}, but rung {last.rung} {last.budget.matched}"
            yield rung.origins.problem(("budget", rung.budget.kind), unlike)
        if rung.train.context != last.train.context:
            reason = "losses at different contexts are not comparable: all rungs must share one context"
            yield rung.origins.problem(("train", "context"), reason, at_key=True)
    if len(rungs) > 1:
        yield from _of_one_size(rungs[0], last)


def _of_one_size(first: Study, last: Study) -> Iterator[Problem]:
    """Problems of models that keep their size, although the ladder has several: sizes of the study's own base, or of
    an arm, override those of a rung."""
    before, baseline = first.arms[0].model, last.arms[0]
    remedy = f"give its sizes under scales.{last.scale}, by rung or as ratios"
    own_ladder = any(origin.target[:1] == ("ladder",) for origin in last.origins.own)
    if before == baseline.model and first.budget == last.budget and not own_ladder:
        reason = f"rungs {first.rung} and {last.rung} have the same model and budget"
        yield last.origins.problem(("base",), f"{reason}, since its own size overrides theirs: {remedy}", at_key=True)
    for small, arm in zip(first.arms, last.arms, strict=True):
        keeps = arm.model == small.model and before != baseline.model
        if keeps or (arm.model.d_model == small.model.d_model and before.d_model != baseline.model.d_model):
            reason = f"keeps its size from rung {first.rung} to {last.rung}, while {baseline.name} grows"
            yield last.origins.problem(arm.target, f"{reason}: {remedy}", at_key=True)


def _falling(rungs: Sequence[Study], plan: Callable[[Study], Plan]) -> Iterator[Problem]:
    """Problems of rungs that spend no more compute than the one before them on the same axis.

    Budgets in seconds are not checked: their compute is known only once steps are timed with the tuned settings.
    """
    last = rungs[-1]
    if len(rungs) < 2 or last.budget.seconds is not None:
        return
    flops = {rung.rung: plan(rung).arms[0].flops for rung in rungs}
    for kind, order in ORDER.items():
        for before, rung in pairwise([*(rung for rung in rungs if axis(rung, last) == kind), last]):
            spent, less = flops[rung.rung], flops[before.rung]
            if spent <= less:
                reason = f"spends {spent:.3g} FLOPs, not more than {before.rung} ({less:.3g}): {order}"
                yield rung.origins.problem(("ladder", str(rung.rung)), reason)
