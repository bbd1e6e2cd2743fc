"""Training speed of this machine, to estimate the time that a plan's arms will take."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import zoo
from ablate.machine.apart import near
from ablate.machine.numerics import Numerics
from ablate.machine.recent import recently
from ablate.planning.plan import ArmPlan, Plan
from ablate.training.spec import TrainSpec, timeless
from evals.costs import peaks
from evals.costs.clock import Clock
from evals.costs.machine import Speed, training_seconds_per_layer, training_steps
from zoo.spec import ModelSpec

LONGEST_STEP = 0.5
"""Estimated seconds of a step above which none is timed: it takes too long, and matrix products dominate it anyway."""
_STEPS = 4


def speed_for(plans: Sequence[Plan], numerics: Numerics) -> Speed:
    """Measured speed of large products and of a layer's overhead, corrected by timing a few steps of each plan's
    baseline.

    Arithmetic alone predicts twice a narrow model's speed: the operations between its products move more bytes than the
    products do.
    """
    speed = machine_speed(numerics)
    tried = {arm.flops / arm.steps: _ratio(arm, speed, numerics) for arm in (plan.arms[0] for plan in plans)}
    return replace(speed, tried={flops: ratio for flops, ratio in tried.items() if ratio is not None})


def machine_speed(numerics: Numerics) -> Speed:
    """Speed of large products and overhead of a layer, measured now or within the last hour."""
    device, kind = numerics.device, numerics.torch_dtype
    return Speed(
        recently(f"FLOP/s of {numerics}", lambda: near(device, peaks.peak_flops_per_second, device, kind)),
        recently(f"seconds per layer of {numerics}", lambda: near(device, training_seconds_per_layer, device)),
    )


def _ratio(arm: ArmPlan, speed: Speed, numerics: Numerics) -> float | None:
    """Measured over estimated time of a step; None if no step is timed."""
    foretold = arm.estimated_seconds(speed) / arm.steps
    if arm.step_time is not None or arm.train.compile or foretold > LONGEST_STEP:
        return None
    model, train = json.dumps(arm.spec.dump()), arm.train.model_dump_json(exclude=timeless())
    # Keyed by digest: the stages of a study train the same model repeatedly.
    digest = hashlib.sha256("\n".join((model, train)).encode()).hexdigest()[:16]

    def measured() -> float:
        return near(numerics.device, _seconds_of, model, train, numerics)

    return recently(f"seconds of a step of {digest}, {numerics}", measured) / foretold


def _seconds_of(model: str, train: str, numerics: Numerics) -> float:
    """`step_seconds` of a model and settings in JSON, which another process can be sent."""
    return step_seconds(zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train), numerics)


def step_seconds(spec: ModelSpec, train: TrainSpec, numerics: Numerics, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of four steps (forward, backward, update) on random tokens. The minimum excludes warm-up
    and interference from other programs.

    Uses AdamW and cross-entropy whatever the study's optimizer and loss: training's own would load torch's compiler,
    which takes longer than the steps. Leaves the caller's random state untouched.
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
