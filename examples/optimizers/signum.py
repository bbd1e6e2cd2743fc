"""Signum: the sign of momentum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from ablate.training.optimizers import Average, Group, Optimizer, Trained, Updates, groups
from ablate.training.optimizers.adamw import per_entry
from zoo.init import Role


class Signum(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · sign(m), with m ← β m + (1 − β) g. Bernstein et al. 2018, arXiv:1802.04434."""

    kind: Literal["signum"] = "signum"
    beta: Average = 0.9
    """Weight of the past in the momentum."""

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        return SignumUpdates(groups(trained, lr), self.beta)

    def width_factors(self, ratio: float) -> Mapping[Role, float]:
        return per_entry(ratio)  # every entry moves by lr, as under AdamW


class SignumUpdates(torch.optim.Optimizer):
    """One tensor of state per parameter, `momentum`."""

    def __init__(self, param_groups: list[Group], beta: float) -> None:
        super().__init__(param_groups, {"beta": beta})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - group["beta"])
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(momentum.sign(), alpha=-group["lr"])
