"""The time of a training step of a model, tried out on random tokens before anything is trained."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

from ablate.machine.numerics import Numerics
from ablate.training.memory import learner_of
from ablate.training.spec import TrainSpec
from evals.costs.clock import Clock, synchronise
from zoo.spec import ModelSpec

_STEPS = 3


def step_seconds(spec: ModelSpec, train: TrainSpec, numerics: Numerics, clock: Clock = time.perf_counter) -> float:
    """Median of three steps, forward, backward and update; the one before them sets up. Nothing is drawn from the
    caller's random numbers."""
    random, device = np.random.default_rng(0), torch.device(numerics.device)
    windows = random.integers(spec.vocab_size, size=(train.batch, train.context + 1))
    seconds = []
    with torch.random.fork_rng():
        learner, _ = learner_of(spec, train, numerics, None, recompute=False)
        batch = train.objective.batch(windows, spec.vocab_size, random).to(numerics.device)
        for step in range(1, 2 + _STEPS):
            synchronise(device)
            start = clock()
            learner.learn(step, 1e-3, batch)
            synchronise(device)
            seconds.append(clock() - start)
    return median(seconds[1:])
