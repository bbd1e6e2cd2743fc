"""`ablate.plan`: what a study would run, and what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ablate.api.study_argument import StudyLike
from ablate.machine.numerics import restored
from ablate.running.context import open_context
from ablate.running.engines import EngineError
from ablate.running.options import PlanOptions, documented
from ablate.running.progress import Wanted
from ablate.running.study_plan import StudyPlan
from ablate.study.reading import load_study
from ablate.study.written import Sets


@documented(PlanOptions.__annotations__)
@restored()
def plan(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    progress: Wanted = True,
    **options: Unpack[PlanOptions],
) -> StudyPlan:
    """Work out what a study would run and what it would cost, without training.

    Times are estimated from this machine's matmul speed, measured within the last hour. If the budget is in seconds,
    the time of a training step is measured for every arm, unless the store has it.

    Args:
        study, scale, sets, store: as in `ablate.run`.
        progress: as in `ablate.run`, for the measurement of step times.
        options: see `ablate.running.options`.

    Returns:
        Arms and runs, as frames and as objects.

    Raises:
        StudyError: the study cannot be read or planned; a line for every problem.
        ArgumentError, EngineError: an argument cannot be used.

    Example:
        >>> plan = ablate.plan("gqa_groups", scale="cpu")
        >>> plan.arms.select("arm", "parameters", "kv_bytes_per_token", "seconds")
    """
    context = open_context(store, options, progress)
    asked = load_study(study, scale, sets, device=context.device)
    if not context.engine.here:
        raise EngineError(f"plan without engine={context.options.engine!r}: times are estimated for this machine")
    return context.plan(asked)
