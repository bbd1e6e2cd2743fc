"""The speed of this machine in training the arms of a plan, for the time that they will take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import zoo
from ablate.machine.numerics import Numerics
from ablate.machine.recent import recently
from ablate.planning.plan import ArmPlan, Plan
from ablate.training.spec import TrainSpec, timeless
from ablate.training.step_trial import step_seconds
from evals.costs import matmul
from evals.costs.machine import Speed, training_seconds_per_layer

LONGEST_STEP = 0.5
"""Seconds by arithmetic from which on a step is not tried out: it takes too long, and products take most of it."""


def speed_for(plans: Sequence[Plan], numerics: Numerics, speed: Speed | None = None) -> Speed:
    """Measured: large products, layers that are all overhead, and a few steps of each plan's baseline as it will train.

    Arithmetic alone takes a narrow model for twice as fast as it is: what lies between its products moves more bytes
    than they do.

    Args:
        speed: the machine's, where it was measured before.
    """
    speed = speed or machine_speed(numerics)
    tried = {arm.flops / arm.steps: _ratio(arm, speed, numerics) for arm in (plan.arms[0] for plan in plans)}
    return replace(speed, tried={flops: ratio for flops, ratio in tried.items() if ratio is not None})


def machine_speed(numerics: Numerics) -> Speed:
    """Large products, and layers that are all overhead, as they were measured within an hour."""
    device, kind = numerics.device, numerics.torch_dtype
    return Speed(
        recently(f"FLOP/s of {numerics}", lambda: matmul.peak_flops_per_second(device, kind)),
        recently(f"seconds per layer of {numerics}", lambda: training_seconds_per_layer(device)),
    )


def _ratio(arm: ArmPlan, speed: Speed, numerics: Numerics) -> float | None:
    """The time of a step over what arithmetic says; None where it is not tried."""
    foretold = arm.estimated_seconds(speed) / arm.steps
    if arm.step_time is not None or arm.train.compile or foretold > LONGEST_STEP:
        return None
    model, train = json.dumps(arm.spec.dump()), arm.train.model_dump_json(exclude=timeless())
    # By digest, since the stages of a study train the same again.
    digest = hashlib.sha256("\n".join((model, train)).encode()).hexdigest()[:16]

    def measured() -> float:
        return step_seconds(zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train), numerics)

    return recently(f"seconds of a step of {digest}, {numerics}", measured) / foretold
