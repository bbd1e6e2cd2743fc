"""The runs of a factorial design as arms: the base first, then the combinations of the study's factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ablate.study.arms import SOURCES, Arm, ArmBuilder, Edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import common_length
from ablate.wings.designs.design_spec import Screen

TARGET = ("factors",)


def design_runs(
    builder: ArmBuilder, base: Arm, edits: Mapping[str, Sequence[Edit]], screen: Screen
) -> tuple[list[Arm], list[Problem]]:
    """All runs, named after their factors (`gated+double`), and their problems. The first has none: it is the base."""
    problems = [*_clashes(builder, edits), *_alone(builder, base, edits)]
    if problems:
        return [base], problems
    arms = {base.identity: base}
    refused: dict[Problem, list[str]] = {}
    for factors in screen.runs[1:]:
        name = "+".join(factors)
        try:
            arm = builder.build(name, [edit for factor in factors for edit in edits[factor]], TARGET)
        except StudyError as error:
            for problem in error.problems:
                refused.setdefault(problem, []).append(name)
            continue
        twin = arms.setdefault(arm.identity, arm)
        if twin is not arm:
            same = builder.origins.problem((*TARGET, factors[-1]), f"is identical to {twin.name}", at_key=True)
            refused.setdefault(same, []).append(name)
    return list(arms.values()), [_in_runs(problem, names) for problem, names in refused.items()]


def _in_runs(problem: Problem, names: Sequence[str]) -> Problem:
    """Add to a problem the first run that has it, and a remedy."""
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    remedy = "leave one of its factors out, or combine two in one factor"
    return replace(problem, reason=f"{problem.reason} (in run {names[0]}{others}: {remedy})")


def _clashes(builder: ArmBuilder, edits: Mapping[str, Sequence[Edit]]) -> Iterator[Problem]:
    """Factors that edit the same setting: in runs with both, one would undo the other."""
    for first, second in combinations(edits, 2):
        for edit in edits[second]:
            for other in edits[first]:
                if common_length(edit.path, other.path) == min(len(edit.path), len(other.path)):
                    reason = f"factor {first} also edits {'.'.join(other.path)}: a run cannot have both"
                    yield builder.origins.problem(edit.target, reason, at_key=True)


def _alone(builder: ArmBuilder, base: Arm, edits: Mapping[str, Sequence[Edit]]) -> Iterator[Problem]:
    """Problems of each factor by itself."""
    for name, own in edits.items():
        starts = [edit for edit in own if edit.path[0] in SOURCES]
        for edit in starts:
            yield builder.origins.problem(
                edit.target, "not allowed in a design: runs start from initial values, without a teacher", at_key=True
            )
        if starts:
            continue
        try:
            arm = builder.build(name, own, (*TARGET, name))
        except StudyError as error:
            yield from error.problems
            continue
        if arm.identity == base.identity:
            yield builder.origins.problem((*TARGET, name), "is identical to the base", at_key=True)
