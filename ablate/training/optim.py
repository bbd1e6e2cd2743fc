"""The optimizer of a model: every parameter with the weight decay and the learning rate of its role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ablate.training.optimizers import Group, Optimizer, StateDict, Trained, Updates
from ablate.training.spec import TrainSpec
from ablate.training.transfer import epsilon_factor
from zoo.init import Role


class CautiousDecay:
    """θ ← θ − lr (u + λ 𝟙[u ⊙ θ ≥ 0] ⊙ θ), u being any optimizer's update without weight decay: an entry decays only
    if the update moves it towards zero, too. Chen et al. 2025, arXiv:2510.12402, algorithm 1.

    u is what the optimizer changed, so every optimizer can have it, at the cost of a copy of the weights in each step.
    """

    def __init__(self, optimizer: Optimizer, trained: Sequence[Trained], lr: float) -> None:
        self.own: Updates = optimizer.build([replace(each, weight_decay=0.0) for each in trained], lr)
        self._decays: dict[nn.Parameter, float] = {each.parameter: each.weight_decay for each in trained}

    @property
    def param_groups(self) -> list[Group]:
        return self.own.param_groups

    @torch.no_grad()
    def step(self) -> Any:
        rates = {p: group["lr"] * self._decays[p] for group in self.param_groups for p in group["params"]}
        before = {p: p.detach().clone() for p, rate in rates.items() if rate and p.grad is not None}
        done = self.own.step()
        for parameter, old in before.items():
            moved = old - parameter  # lr · u
            parameter.sub_(old * (moved * old >= 0), alpha=rates[parameter])
        return done

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.own.zero_grad(set_to_none)

    def state_dict(self) -> StateDict:
        return self.own.state_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        self.own.load_state_dict(state_dict)


def build_optimizer(
    model: nn.Module, roles: Mapping[str, Role], spec: TrainSpec, d_model: int, n_layers: int
) -> Updates:
    """Build the optimizer of `spec`. roles: the role of every parameter of `model`."""
    found = trained(model, roles, spec, d_model, n_layers)
    if spec.optimizer.cautious_decay and not spec.optimizer.decays_cautiously:
        return CautiousDecay(spec.optimizer, found, spec.lr)
    return spec.optimizer.build(found, spec.lr)


def trained(model: nn.Module, roles: Mapping[str, Role], spec: TrainSpec, d_model: int, n_layers: int) -> list[Trained]:
    """The trainable parameters, shared ones once. Weight decay is divided by the learning-rate factor, so that width
    transfer leaves their product unchanged."""
    factors = width_factors(spec, d_model)
    found = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            role = roles[name]
            factor = factors.get(role, 1.0)
            decay, eps = getattr(spec.weight_decay, role) / factor, epsilon_factor(spec, n_layers, name)
            found.append(Trained(parameter, role, decay, factor, eps))
    return found


def width_factors(spec: TrainSpec, d_model: int) -> Mapping[Role, float]:
    """Factors on the learning rate by role, 1 for a role not named. Raises ValueError if no rule is known."""
    if spec.width_transfer is None:
        return {}
    factors = spec.optimizer.width_factors(spec.width_transfer.ratio(d_model))
    if factors is None:
        raise ValueError(f"width transfer does not support the optimizer {spec.optimizer.kind}")
    return factors


# Learning-rate schedules: pure functions of the step.
#
# Step s = 1 … N. The rate rises linearly from 0 (before step 1) to its peak at step w + 1, where w is the number of
# warm-up steps, and then follows the schedule, which would reach `final_lr` × peak at step N + 1: no step is spent at
# rate 0.


def learning_rate(step: int, steps: int, spec: TrainSpec) -> float:
    """The learning rate of 1-based `step` out of `steps`."""
    warmup = spec.warmup_steps(steps)
    if step <= warmup:
        return spec.lr * step / (warmup + 1)
    done, after_warmup = step - 1 - warmup, steps - warmup
    return spec.lr * _share_of_peak(done, after_warmup, steps, spec)


def decay_steps(steps: int, spec: TrainSpec) -> int:
    """Steps that wsd spends decaying."""
    return min(round(spec.decay * steps), steps - spec.warmup_steps(steps))


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
            decay = decay_steps(steps, spec)
            decayed = done - (after_warmup - decay)
            return 1.0 if decayed <= 0 else 1 - (1 - spec.final_lr) * decayed / decay
