"""What a study asks of a grid or a design: its arms, one for each cell or run, their problems, and the design in plans
and in the study's document.

The runs of a design are the base first, then the combinations of the study's factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from ablate.planning.plan import Plan
from ablate.planning.study_document import study_arm
from ablate.study.arms import SOURCES, Arm, ArmBuilder, Edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import common_length
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.study.study import Study
from ablate.study.tune_spec import TuneSpec
from ablate.study.yamlfile import StudyMap
from ablate.wings.designs.design_spec import FEWEST_SPARE, DesignError, DesignKeys, Screen, named, screen
from ablate.wings.designs.factorial import Effect, structure
from store.documents import JsonObject, StudyArm, StudyDesign, StudyDocument, StudyEffect
from zoo.settings.identity import digest_of

NOT_IN_A_DESIGN = "cannot be combined with a design, whose runs are made from factors at one size: leave this out"
UNLIKE = ("arms", "grid", "contrasts", "search", "ladder")
"""Sections that exclude a design."""


def arms(
    reader: RungReader, tree: StudyMap, sections: StudySections | None, builder: ArmBuilder | None, base: Arm | None
) -> tuple[list[Arm], tuple[str, ...]] | None:
    """The cells of the grid; or the runs of the design, and its factors. None if there is neither, or a design with
    problems, which are recorded."""
    reader.problems += reader.name_problems(tree, "factors", "factor")
    if not (tree.get("design") or tree.get("factors")):
        return (_cells(reader, tree, sections, builder, base), ()) if tree.get("grid") else None
    unlike = [key for key in UNLIKE if tree.get(key)]
    reader.problems += [reader.origins.problem((key,), NOT_IN_A_DESIGN, at_key=True) for key in unlike]
    if sections is None or unlike:
        return None
    assert isinstance(sections, DesignKeys)
    if sections.design is None:
        reader.problems.append(reader.origins.problem(("factors",), "need a design: {factorial: full}", at_key=True))
        return None
    factors = tuple(sections.factors)
    try:
        chosen = screen(sections.design, factors)
    except DesignError as error:
        reader.problems.append(reader.origins.problem(("design", *error.setting), error.reason))
        return None
    if isinstance(sections.tune, TuneSpec) and chosen.spare < FEWEST_SPARE:
        reason = (
            f"the noise of tuning is estimated from contrasts without an effect, of which the design has"
            f" {chosen.spare} and needs {FEWEST_SPARE}: use more runs, or set `tune: off`"
        )
        reader.problems.append(reader.origins.problem(("design", "factorial"), reason))
    if builder is None or base is None:
        return None
    found, problems = design_runs(builder, base, reader.named_edits(tree, "factors"), chosen)
    reader.problems += problems
    return found, factors


def _cells(
    reader: RungReader, tree: StudyMap, sections: StudySections | None, builder: ArmBuilder | None, base: Arm | None
) -> list[Arm]:
    """Every arm with every combination of the grid; the plain arms if something has problems, which are recorded."""
    plain = reader.plain_arms(tree, builder, base)
    if reader.problems or sections is None or builder is None:
        return plain
    assert isinstance(sections, DesignKeys)
    crossed, problems = cells(builder, plain, reader.named_edits(tree, "arms"), sections.grid)
    reader.problems += problems
    return crossed


GRID_LAYER = 1_000_000
"""Layer number of a grid's edits: after every layer of the file, since a cell edits its arm."""


def cells(
    builder: ArmBuilder, arms: Sequence[Arm], edits: Mapping[str, list[Edit]], grid: Mapping[str, Sequence[Any]]
) -> tuple[list[Arm], list[Problem]]:
    """The baseline, then every arm (the baseline too) in every cell, and their problems. A cell without changes is the
    arm itself. Other cells are named after their arm and their changes: `post+lr=0.001`.
    """
    axes: list[list[Edit]] = []
    for path, values in grid.items():
        keys = tuple(path.split("."))
        axes.append([Edit(("grid", *keys, str(i)), keys, value, GRID_LAYER) for i, value in enumerate(values)])
    problems = [
        builder.origins.problem(axis[0].target[:-1], reason, at_key=True)
        for axis in axes
        if (reason := builder.shared_reason(axis[0].path))
    ] + [*_overlaps(builder, edits, axes)]
    if not problems:
        problems = [problem for axis in axes for problem in _twins(builder, arms[0], axis)]
    if problems:
        return list(arms), problems
    found = {arms[0].identity: arms[0]}
    for arm in arms:
        for combination in product(*axes):
            try:
                cell = _cell(builder, arm, edits.get(arm.name, []), combination, found)
                place = {".".join(edit.path): edit.value for edit in combination}
                cell = replace(cell, cell={"arm": arm.name, **place} if len(arms) > 1 else place)
            except StudyError as error:
                problems += [Problem(p.place, p.path, f"{p.reason} (in arm {arm.name})") for p in error.problems]
                continue
            if cell.identity not in found or not found[cell.identity].cell:
                found[cell.identity] = cell
    return list(found.values()), problems


def _cell(
    builder: ArmBuilder, arm: Arm, own: list[Edit], combination: Sequence[Edit], found: Mapping[tuple[str, ...], Arm]
) -> Arm:
    """One cell. Raises StudyError if it cannot be built or equals an earlier one."""
    whole = builder.build(arm.name, [*own, *combination], arm.target)
    if whole.identity == arm.identity:
        return arm
    changing = [edit for edit in combination if builder.build("", [*own, edit], arm.target).identity != arm.identity]
    name = "+".join([arm.name, *(f"{edit.path[-1]}={_shown(edit.value)}" for edit in changing)])
    edits = {**arm.edits, **{".".join(e.path): e.value for e in changing}}
    cell: Arm = replace(whole, name=name, edits=edits, own=(*own, *changing))
    twin = found.get(cell.identity)
    if twin is not None:
        raise StudyError([builder.origins.problem(combination[-1].target, f"is identical to {twin.name}")])
    return cell


def _twins(builder: ArmBuilder, base: Arm, axis: Sequence[Edit]) -> Iterator[Problem]:
    """Values of one axis that give the same model and training."""
    found: dict[tuple[str, ...], Edit] = {}
    for edit in axis:
        try:
            identity = builder.build(base.name, [edit], base.target).identity
        except StudyError as error:
            yield from error.problems
            continue
        twin = found.setdefault(identity, edit)
        if twin is not edit:
            yield builder.origins.problem(edit.target, f"is identical to {_shown(twin.value)}")


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _overlaps(
    builder: ArmBuilder, edits: Mapping[str, list[Edit]], axes: Sequence[Sequence[Edit]]
) -> Iterator[Problem]:
    """Settings that both an arm and the grid edit: one would undo the other."""
    for own in edits.values():
        for edit in own:
            for axis in axes:
                shorter = min(len(edit.path), len(axis[0].path))
                if edit.path[:shorter] == axis[0].path[:shorter]:
                    reason = f"the grid also edits {'.'.join(axis[0].path)}"
                    yield builder.origins.problem(edit.target, reason, at_key=True)


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
    for problem, names in refused.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        remedy = "leave one of its factors out, or combine two in one factor"
        problems.append(replace(problem, reason=f"{problem.reason} (in run {names[0]}{others}: {remedy})"))
    return list(arms.values()), problems


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


UNSAID = {"identity", "other_identity"}
"""Fields of an effect that `ablate plan --json` omits."""


def screen_of(study: Study) -> Screen | None:
    """The design whose runs are the study's arms; None if there is none."""
    sections = study.sections
    design = sections.design if isinstance(sections, DesignKeys) else None
    return None if design is None else screen(design, study.factors)


def fields(study: Study, document: StudyDocument) -> Mapping[str, object]:
    """Fields of the study's document."""
    chosen = screen_of(study)
    return {} if chosen is None else {"design": design_document(chosen, document.arms)}


def plan_json(plan: Plan) -> JsonObject:
    """Fields of `ablate plan --json`."""
    chosen = screen_of(plan.study)
    if chosen is None:
        return {"design": None}
    found = design_document(chosen, [study_arm(arm) for arm in plan.arms])
    return {"design": found.model_dump(mode="json", exclude={"effects": {"__all__": UNSAID}})}


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table."""
    if chosen := screen_of(study):
        yield from design_lines(chosen, tuned=study.tune is not None)


def design_lines(screen: Screen, *, tuned: bool) -> Iterator[str]:
    """Lines on the design: the estimated effects, and those that are aliased."""
    yield f"Design. {structure(len(screen.factors), len(screen.runs), screen.design.resolution)}"
    yield f"Effects, judged together: {', '.join(map(named, screen.effects))}."
    if aliased := screen.design.alias_text():
        yield f"Aliased: {'; '.join(aliased)}."
    if tuned:
        yield f"Error of effects: from the {screen.spare} contrasts without an effect, because each run is tuned."


def design_document(screen: Screen, arms: Sequence[StudyArm]) -> StudyDesign:
    """The factorial design in the study's document. arms: one per run of the design."""
    return StudyDesign(
        factors=screen.factors,
        resolution=screen.design.resolution,
        correction=screen.correction,
        effects=tuple(_effect(screen, effect, arms) for effect in screen.effects),
    )


def _effect(screen: Screen, effect: Effect, arms: Sequence[StudyArm]) -> StudyEffect:
    levels = screen.design.contrast(effect)
    high = [arm for arm, level in zip(arms, levels, strict=True) if level > 0]
    low = [arm for arm, level in zip(arms, levels, strict=True) if level < 0]
    return StudyEffect(
        factors=effect,
        aliases=screen.aliases(effect),
        arms=tuple(arm.name for arm in high),
        identity=_identity(high),
        other_identity=_identity(low),
    )


def _identity(arms: Sequence[StudyArm]) -> str:
    """Order-independent identity of several arms; as long as theirs, so as to match an earlier version's ledger."""
    return digest_of(sorted(arm.identity for arm in arms), max(len(arm.identity) for arm in arms))
