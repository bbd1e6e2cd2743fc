"""`ablate.plan`: what a study would run, and what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ablate.api.study_argument import StudyLike
from ablate.api.study_plan import StudyPlan
from ablate.machine.apart import near
from ablate.machine.gpus import alike_gpus
from ablate.machine.numerics import Numerics, restored
from ablate.planning.durations import speed_for
from ablate.planning.memory import Room
from ablate.running.context import RunContext, open_context
from ablate.running.engines import EngineError
from ablate.running.options import PlanOptions, documented
from ablate.running.progress import Wanted
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from evals.costs.machine import room_bytes


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
    return plan_in(context, asked)


def plan_in(context: RunContext, asked: Study) -> StudyPlan:
    """Plan a study for the context's device and engine, given the results in its store."""
    planner = context.planner(asked, unread=True)
    foreseen = planner.foreseen()
    outcome = foreseen.outcome
    numerics = Numerics(**outcome.plan.runs[0].identity.numerics.model_dump())
    done = {run.digest: planner.loss(run.digest) is not None for rung in outcome.rungs for run in rung.plan.runs}
    on_gpu = context.device == "cuda"
    runs = context.options.workers_per_gpu if on_gpu else context.engine.at_once
    free = near(context.device, room_bytes, context.device, [gpu.number for gpu in alike_gpus()])
    room = Room(free, runs, free=on_gpu)
    at_once = context.engine.at_once
    speed = speed_for([rung.plan for rung in outcome.rungs], numerics)
    tuned, tuning = foreseen.tuned, foreseen.tuning
    store, options = context.store, context.options
    return StudyPlan(outcome, tuned, tuning, foreseen.starts, speed, done, store, asked, options, room, at_once)
