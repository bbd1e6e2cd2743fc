"""The time of a training step of a model, tried out on random tokens before anything is trained."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.spec import TrainSpec
from evals.costs.clock import Clock
from evals.costs.machine import training_steps
from zoo.spec import ModelSpec

_STEPS = 4


def step_seconds(spec: ModelSpec, train: TrainSpec, numerics: Numerics, clock: Clock = time.perf_counter) -> float:
    """The quickest of four steps, forward, backward and update: others may be at work, and the first one sets up.

    The update is AdamW's and the loss that of the next token, whatever the study's are: training's own load torch's
    compiler, which takes longer than the steps. Nothing is drawn from the caller's random numbers.
    """
    random, device = np.random.default_rng(0), torch.device(numerics.device)
    windows = random.integers(spec.vocab_size, size=(train.batch, train.context + 1))
    with torch.random.fork_rng():
        with device:
            model = zoo.Decoder(spec).train()
        batch = train.objective.batch(windows, spec.vocab_size, random).to(numerics.device)

        def loss() -> Tensor:
            with numerics.autocast():
                logits = model(batch.tokens, **batch.given)
            return functional.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())

        return min(training_steps(model, loss, _STEPS, clock))
