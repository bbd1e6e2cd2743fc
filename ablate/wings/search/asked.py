"""What a study asks of a search: its problems, and its cost in a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ablate.data.made import MadeSource
from ablate.planning.plan import ArmPlan
from ablate.readable import clock
from ablate.study.arms import Arm, ArmBuilder
from ablate.study.complaints import Problem, StudyError
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.study.study import Study
from ablate.wings.search.search_space import SearchSpace
from ablate.wings.search.search_spec import SearchSpec
from evals.costs.machine import Speed
from store.documents.study import UNJUDGED


def problems(
    reader: RungReader, builder: ArmBuilder, sections: StudySections, arms: Sequence[Arm], factors: Sequence[str]
) -> Iterator[Problem]:
    """Problems of a search's space."""
    asked: SearchSpec | None = getattr(sections, "search", None)
    if asked is not None:
        try:
            yield from SearchSpace(builder, asked.space).problems()
        except StudyError as error:
            yield from error.problems


def check(study: Study) -> None:
    """Raises StudyError for an objective that the study's data do not have."""
    made = isinstance(study.data, MadeSource)
    absent = "bits_per_byte" if made else "accuracy"
    if study.search is not None and absent in study.search.objectives:
        said = f"{study.data.source} has no bytes" if made else "text has no answers"
        raise study.error("search.objectives", f"{said}: there is no {absent}")


def plan_lines(study: Study, base: ArmPlan, speed: Speed, at_once: float) -> list[str]:
    """Cost of a search, if all trials cost what the base does, and warnings; empty for a study without a search."""
    spec: SearchSpec | None = study.search
    if spec is None:
        return []
    last = spec.confirming if study.scale not in UNJUDGED else 0
    whole, each = spec.whole_runs * spec.seeds + last, base.estimated_seconds(speed)
    validations = math.ceil(1 / base.train.validate_every - 1e-9)
    trials = (
        f"trials at the cost of {spec.trials} whole ones"
        if spec.pruning(validations)
        else f"up to {spec.trials} trials"
    )
    kept = f", and {last} runs that confirm the best against {base.name}" if last else ""
    begun = f"; trials start at {100 * spec.shares[0]:.3g} % of the budget" if spec.fidelity else ""
    lines = [
        f"Search: {trials}{kept}{begun}: {whole * base.flops:.3g} FLOPs, about"
        f" {clock(max(1.0, whole * each / at_once))} if all cost as much as {base.name}"
    ]
    return [*lines, *spec.warnings(validations)]
