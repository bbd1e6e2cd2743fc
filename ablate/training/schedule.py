"""Learning-rate schedules: pure functions of the step.

Step s = 1 … N. The rate rises linearly from 0 (before step 1) to its peak at step w + 1, where w is the number of
warm-up steps, and then follows the schedule, which would reach `final_lr` × peak at step N + 1: no step is spent at
rate 0.
"""

from __future__ import annotations

import math

from ablate.training.spec import TrainSpec


def learning_rate(step: int, steps: int, spec: TrainSpec) -> float:
    """The learning rate of 1-based `step` out of `steps`."""
    warmup = warmup_steps(steps, spec)
    if step <= warmup:
        return spec.lr * step / (warmup + 1)
    done, after_warmup = step - 1 - warmup, steps - warmup
    return spec.lr * _share_of_peak(done, after_warmup, steps, spec)


def warmup_steps(steps: int, spec: TrainSpec) -> int:
    return round(spec.warmup * steps)


def _share_of_peak(done: int, after_warmup: int, steps: int, spec: TrainSpec) -> float:
    """The share f … 1 of the peak rate after a share p of the steps that follow warm-up."""
    match spec.schedule:
        case "constant":
            return 1.0
        case "cosine":  # f + (1 − f) · (1 + cos πp) / 2. Loshchilov & Hutter 2016, arXiv:1608.03983
            return spec.final_lr + (1 - spec.final_lr) * (1 + math.cos(math.pi * done / after_warmup)) / 2
        case "linear":  # 1 − (1 − f) · p
            return 1 - (1 - spec.final_lr) * done / after_warmup
        case "wsd":  # stable, then linear over the last `decay` share of all steps. Hu et al. 2024, arXiv:2404.06395
            decay = min(round(spec.decay * steps), after_warmup)
            decayed = done - (after_warmup - decay)
            return 1.0 if decayed <= 0 else 1 - (1 - spec.final_lr) * decayed / decay
