"""Grids: every arm with every combination of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ablate.study.arms import Arm, ArmBuilder, Edit
from ablate.study.complaints import Problem, StudyError

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
