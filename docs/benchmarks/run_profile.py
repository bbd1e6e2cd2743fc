"""Processor time of one run by part: `python docs/benchmarks/run_profile.py STORE STUDY [SCALE]`.

Trains, measures and evaluates the baseline with its first seed in this process, as a worker does, and prints each
part's share. Time is that of the main thread, so other work on the machine is not counted. The thread that prepares
batches is counted separately. Each part excludes the parts within it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

# Loaded, as in the process from which workers are forked (`ablate.running.forkserver`).
import polars  # noqa: F401
import torch._dynamo  # noqa: F401

from ablate.running import phases
from ablate.running.context import open_context
from ablate.study.reading import load_study
from ablate.training import session
from ablate.training.loop import Learner
from ablate.training.reader import TrainingReader, Validation
from ablate.training.stop import StopSignal
from store import Store

seconds: dict[str, float] = {}
calls: dict[str, int] = {}
inside: list[float] = []


def counted(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        inside.append(0.0)
        begin = time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            taken = time.thread_time() - begin
            seconds[part] = seconds.get(part, 0.0) + taken - inside.pop()
            calls[part] = calls.get(part, 0) + 1
            if inside:
                inside[-1] += taken

    return timed


def beside(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, timed in a thread other than the training thread."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[part] = seconds.get(part, 0.0) + time.thread_time() - begin

    return timed


PARTS: dict[str, list[tuple[Any, str]]] = {
    "training steps": [(Learner, "learn")],
    "validation on the way": [(Validation, "on_the_way")],
    "final losses": [(Validation, "at_the_end")],
    "model, optimizer, data": [(phases, "Session")],
    "logging": [(session.Session, "_note")],
    "saving": [(session, "save_state"), (phases, "keep_trained")],
    "the rest of the loop": [(session.Session, "run")],
    "ceiling of matrix products": [(phases, "recent_peak_flops_per_second")],
    "measuring": [(phases, "measure")],
    "evaluating": [(phases, "evaluate")],
    "documents": [(phases, "run_phases")],
}
BESIDE = "batches, in a thread beside"


def main(store: str, study: str, scale: str | None = None) -> None:
    imported = time.process_time()
    context = open_context(store, {"device": "cpu", "workers": 1})
    plan = context.planner(load_study(study, scale, device="cpu")).foreseen().outcome.plan
    request = context.request(plan, plan.arms[0].runs[0].identity)
    for part, places in PARTS.items():
        for owner, name in places:
            setattr(owner, name, counted(part, getattr(owner, name)))
    TrainingReader.batch = beside(BESIDE, TrainingReader.batch)
    gc.freeze()  # as the fork server does
    with Store(request.store).claim(request.digest, 300.0) as claim:
        phases.run_phases(request, StopSignal(), claim)
    aside = seconds.pop(BESIDE, 0.0)
    total = sum(seconds.values())
    for part, taken in sorted(seconds.items(), key=lambda each: -each[1]):
        print(f"| {part} | {taken:.2f} s | {100 * taken / total:.1f} % |")
    steps = seconds["training steps"]
    print(f"| all | {total:.2f} s | |\nimports: {imported:.2f} s; {BESIDE}: {aside:.2f} s")
    print(f"steps: {calls['training steps']}; loop beside them {100 * seconds['the rest of the loop'] / steps:.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
