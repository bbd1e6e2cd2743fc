"""Processes that time arms against each other, one of them: `python -m ablate.running.rehearsal N request.json`.

It writes `ready` to file descriptor N once its libraries are loaded, and waits for a line on standard input. Then it
measures, and answers with a `CostProcess` as one line of JSON.

Each process builds the models in a random order of its own: a model's place in memory depends on when it was built, and
may alone make it faster. Models for serving are freed before training is timed.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from math import ceil
from pathlib import Path
from random import Random
from typing import NamedTuple

import zoo
from ablate.data import open_corpus
from ablate.machine.environment import describe
from ablate.machine.numerics import Numerics, enforce
from ablate.running.child_process import ChildProcess, answers_to, end_with_parent, start
from ablate.running.request import scratch
from ablate.training.compiling import GraphBreakError, one_graph
from ablate.training.execution import DEFAULT, Execution
from ablate.training.session import Session
from ablate.training.spec import timeless
from evals.costs.alternation import TURN_SECONDS, Effort, TakeTurn, alternate, serving
from evals.costs.clock import watched
from evals.costs.memory import keep_freed_memory
from evals.costs.spec import PROCESSES, MeasureSpec
from evals.found import count
from store import AblateError, Store
from store.documents import CostPoint, CostProcess, Environment, JsonObject, Part, RunDocument
from zoo.model import Decoder

ENDLESS = 10**9
"""Number of steps in the identity of a run that is only timed."""


class Rehearsed(Part):
    """An arm to time. identity: that of one of its runs, with `ENDLESS` steps."""

    name: str
    identity: RunDocument
    corpus: str


class Timed(Part):
    """Measurements of each process, and the machine's environment."""

    processes: tuple[CostProcess, ...]
    environment: Environment


class Rehearsal(Part):
    """Arms to time. measure: a `MeasureSpec` for prefill and decoding; None times training alone. order: seed of the
    order of models."""

    arms: tuple[Rehearsed, ...]
    measure: JsonObject | None
    effort: Effort
    store: str
    execution: Execution = DEFAULT
    order: int = 0

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    @property
    def spec(self) -> MeasureSpec | None:
        return None if self.measure is None else MeasureSpec.model_validate(self.measure)


def main(arguments: list[str]) -> int:
    answers, request = answers_to(arguments[0]), Rehearsal.model_validate_json(Path(arguments[1]).read_bytes())
    importlib.import_module("torch._dynamo")  # loaded by the first optimizer, and slow
    print("ready", file=answers)
    if not sys.stdin.readline():
        return 1
    end_with_parent()
    with watched(request.arms[0].identity.numerics.device) as sensors:
        points = tuple(_points(request))
    print(CostProcess(points=points, gpu=sensors.state).model_dump_json(), file=answers)
    return 0


def _points(request: Rehearsal) -> Iterator[CostPoint]:
    order = Random(request.order)
    keep_freed_memory()
    if request.spec is not None:
        models = _Alike(request.arms, lambda arm: arm.identity.model)  # the model alone determines the serving speed
        built: dict[str, Decoder] = {}
        for arm in models.shuffled(order):  # untrained weights are as fast as trained ones
            numerics, spec = _enforced(arm.identity), zoo.parse(arm.identity.model)
            built[arm.name] = zoo.build(spec, seed=0).to(numerics.device, numerics.torch_dtype)
        for point in serving(built, request.spec, request.effort, order):
            yield models.named(point)
        del built
        gc.collect()
    steps = _Alike(request.arms, _step)
    yield steps.named(_trained(request, steps.shuffled(order), order))


class _Alike:
    """Arms grouped by a key of their computation; each group is measured once."""

    def __init__(self, arms: Sequence[Rehearsed], key: Callable[[Rehearsed], object]) -> None:
        groups: dict[str, list[Rehearsed]] = {}
        for arm in arms:
            groups.setdefault(json.dumps(key(arm), sort_keys=True), []).append(arm)
        self.groups = list(groups.values())

    def shuffled(self, order: Random) -> list[Rehearsed]:
        """One arm of each group, in random order."""
        return order.sample([first for first, *_ in self.groups], len(self.groups))

    def named(self, point: CostPoint) -> CostPoint:
        """A copy of the point in which each measured arm's values are repeated for all arms of its group."""
        found: dict[str, dict[str, object]] = {}
        for part in ("seconds", "waited", "reasons"):
            known = getattr(point, part)
            found[part] = {arm.name: known[own[0].name] for own in self.groups if own[0].name in known for arm in own}
        return point.model_copy(update=found)


def _step(arm: Rehearsed) -> JsonObject:
    """Everything that determines the speed of training."""
    return arm.identity.model_dump(mode="json", exclude={"digest", "seed", "data", "train"}) | {
        "train": {name: value for name, value in arm.identity.train.items() if name not in timeless()},
        "corpus": arm.corpus,
    }


def _enforced(identity: RunDocument) -> Numerics:
    wanted = identity.numerics
    enforce(wanted.device, wanted.dtype)
    return Numerics(wanted.device, wanted.dtype, wanted.matmul)


def _trained(request: Rehearsal, arms: Sequence[Rehearsed], order: Random) -> CostPoint:
    """Time training steps as runs take them, including the reading of batches."""
    sessions: dict[str, Session] = {}
    compared = request.spec is not None  # else a budget in seconds asks for the time of a step, however it is executed
    with one_graph() if compared else nullcontext():
        for arm in arms:
            sessions[arm.name] = Session(
                Store(request.store),
                arm.identity,
                open_corpus(Path(arm.corpus)),
                _enforced(arm.identity),
                request.execution,
                rest_seconds=TURN_SECONDS,
            )
    turns, reasons = dict[str, TakeTurn](), dict[str, str]()
    for name, session in sessions.items():
        if compared and session.numerics.device == "cuda" and not session.spec.compile:
            reasons[name] = LAUNCH_BOUND
            continue
        turn = _training_turn(session)
        try:
            turn()  # warm-up: compilation and first touch of memory
            turns[name] = turn
        except GraphBreakError as error:
            reasons[name] = str(error)
    rounds = alternate(turns, request.effort.judged, order)
    context, batch = (max(getattr(each.spec, name) for each in sessions.values()) for name in ("context", "batch"))
    return CostPoint(work="training", context=context, batch=batch, **rounds._asdict(), reasons=reasons)


LAUNCH_BOUND = "launch-bound: Python and unfused kernels limit steps that are not compiled (set train.compile: true)"
"""Why arms are not compared: unfused on a GPU, one more norm costs a tenth of a step; fused, next to nothing."""


def _training_turn(session: Session) -> TakeTurn:
    """A turn: a stretch of steps. Its first step is excluded if there are several: caches were cold, or the device
    idle."""
    stretches = session.rehearse()

    def turn() -> float:
        steps = next(stretches)
        counted = steps[1:] or steps
        return sum(1 / step.tokens_per_second for step in counted) / len(counted)

    return turn


# Timing arms in several such processes.

FEWEST = 3
"""Minimum number of processes if they measure concurrently, as runs will train."""


class CalibrationError(AblateError):
    """Speeds could not be measured, for the reason in the message."""


def rehearse(request: Rehearsal, places: Sequence[Mapping[str, str]], *, alone: bool) -> Timed:
    """Measure in several processes, each with its own order of models. Raises CalibrationError.

    places: environment variables of each process that may run concurrently. alone: run `PROCESSES` processes one after
    another in the first place.
    """
    waves = [places[:1]] * PROCESSES if alone else [places] * ceil(FEWEST / len(places))
    found: list[CostProcess] = []
    with scratch() as folder, _processes(folder, request, [*chain.from_iterable(waves)]) as processes:
        for process in processes:
            process.expect()  # wait until its libraries are loaded: loading would disturb the others
        waiting = iter(processes)
        for wave in waves:
            working = [next(waiting) for _ in wave]
            for process in working:
                process.child.ask("go")
            found += [CostProcess.model_validate_json(process.expect()) for process in working]
            count(len(found), len(processes))
    device = request.arms[0].identity.numerics.device
    return Timed(processes=tuple(found), environment=describe(device, threads=1))


@contextmanager
def _processes(folder: Path, request: Rehearsal, places: Sequence[Mapping[str, str]]) -> Iterator[list[_Process]]:
    """One rehearsal process in each place. They end with the block, however it ends."""
    processes: list[_Process] = []
    try:
        for number, variables in enumerate(places):
            path, log = folder / f"{number}.json", folder / f"{number}.log"
            own = request.model_copy(update={"order": request.order + number})
            path.write_text(own.to_json(), encoding="utf-8")
            with log.open("wb") as output:
                child = start("ablate.running.rehearsal", str(path), variables=variables, output=output)
            processes.append(_Process(child, log))
        yield processes
    finally:
        for process in processes:
            process.child.kill()


class _Process(NamedTuple):
    """A rehearsal process, which waits for a line to begin, and its log file."""

    child: ChildProcess
    log: Path

    def expect(self) -> str:
        """The next line of the process's answers. Raises CalibrationError if the process ends without one."""
        line = self.child.answers.readline().decode()
        if not line.endswith("\n"):
            words = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line for line in reversed(words) if line.strip()), "its process exited without a result")
            raise CalibrationError(f"speeds could not be measured: {last}")
        return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
