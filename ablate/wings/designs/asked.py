"""What a study asks of a grid or a design: its arms, one for each cell or run, and their problems."""

from __future__ import annotations

from ablate.study.arms import Arm, ArmBuilder
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.study.tune_spec import TuneSpec
from ablate.study.yamlfile import StudyMap
from ablate.wings.designs.design_runs import design_runs
from ablate.wings.designs.design_spec import FEWEST_SPARE, DesignError, DesignKeys, screen
from ablate.wings.designs.grid import cells

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
