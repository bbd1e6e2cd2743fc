"""Processor seconds of compiled steps of the demo's size, with a program of their own and with a shared one.

    rm -rf /tmp/programs; TORCHINDUCTOR_CACHE_DIR=/tmp/programs OMP_NUM_THREADS=1 PYTHONPATH=. \
        python docs/benchmarks/program_cost.py

Each number is that of a forked process, as a run's worker is one. Eager, unshared and shared runs take turns.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Callable

import torch

import ablate.running.phases  # noqa: F401 (what a worker has loaded)
import zoo
from ablate.machine.numerics import enforce
from ablate.training.batch import Batch
from ablate.training.compiling import compiled
from ablate.training.loop import Learner
from ablate.training.optim import build_optimizer
from ablate.training.spec import TrainSpec
from ablate.wings.execution.program_server import sharing

STEPS, ROUNDS = 200, 5
TRAIN = TrainSpec(context=128, batch=6, lr=1e-2)
NUMERICS = enforce("cpu", "float32")


def model(seed: int) -> zoo.Decoder:
    size = {"d_model": 24, "n_layers": 6, "block.mixer.heads": 2}
    return zoo.build(zoo.load("small", vocab_size=1024, **size), seed=seed)


def batch(step: int) -> Batch:
    random = torch.Generator().manual_seed(step)
    return Batch.next_token(torch.randint(0, 1024, (TRAIN.batch, TRAIN.context + 1), generator=random))


def train(compile_: bool, steps: int) -> Callable[[], None]:
    def go() -> None:
        own = model(seed=1)
        optimizer = build_optimizer(own, zoo.roles(own), TRAIN, own.spec.d_model, own.spec.n_layers)
        learner = Learner(compiled(own.loss) if compile_ else own.loss, optimizer, TRAIN, NUMERICS)
        for step in range(steps):
            learner.learn(step + 1, TRAIN.lr, batch(step))

    return go


def seconds(work: Callable[[], None]) -> float:
    """Processor seconds of the work in a forked process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("a run failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def timed(compile_: bool) -> tuple[float, float]:
    """Seconds of a first step, and of each of the following."""
    first = seconds(train(compile_, 1))
    return first, (seconds(train(compile_, 1 + STEPS)) - first) / STEPS


def shared(ask: int, answer: int) -> None:
    """Load the program, then time a run for each byte that arrives."""
    with sharing():
        began, own = sum(os.times()[:2]), model(seed=0)
        loss, first = compiled(own.loss), batch(0)
        loss(first.tokens, first.targets)
        os.write(answer, f"{sum(os.times()[:2]) - began}\n".encode())
        while os.read(ask, 1):
            os.write(answer, "{} {}\n".format(*timed(True)).encode())
    os._exit(0)


def main() -> None:
    print(f"compile: {seconds(train(True, 1)):.1f} s")
    asked, ask = os.pipe()
    answered, answer = os.pipe()
    if os.fork() == 0:
        os.close(ask)
        shared(asked, answer)
    answers = os.fdopen(answered)
    print(f"load from torch's cache: {float(answers.readline()):.1f} s")
    found: dict[str, list[tuple[float, float]]] = {"eager": [], "compiled, unshared": [], "compiled, shared": []}
    for _ in range(ROUNDS):
        found["eager"].append(timed(False))
        found["compiled, unshared"].append(timed(True))
        os.write(ask, b".")
        first, each = map(float, answers.readline().split())
        found["compiled, shared"].append((first, each))
    os.close(ask)
    os.wait()
    for name, rows in found.items():
        first, each = map(statistics.median, zip(*rows, strict=True))
        ratios = sorted(eager / own for (_, eager), (_, own) in zip(found["eager"], rows, strict=True))
        print(f"{name}: first step {first:.2f} s, then {1000 * each:.1f} ms a step,", end=" ")
        print(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) times as fast as eager")


if __name__ == "__main__":
    main()
