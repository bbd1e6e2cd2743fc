"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import ValidationInfo, field_validator

from ablate.training.optimizers import Average, Optimizer, Trained, Updates, groups, with_gradients
from zoo.init import Role


class SGD(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · m, with m ← μ m + g; Nesterov's takes g + μ m for m (Sutskever et al. 2013).

    torch's own, with decoupled weight decay (SGDW, Loshchilov & Hutter 2017, arXiv:1711.05101) in place of torch's,
    which adds λθ to g: so weight decay means the same under every optimizer. m is a sum, not an average: a steady
    gradient moves a parameter by lr / (1 − μ) times itself.
    """

    ignores_gradient_size: ClassVar[bool] = False
    kind: Literal["sgd"] = "sgd"
    momentum: Average = 0.9
    """μ; 0 for none."""
    nesterov: bool = False
    """Nesterov's look-ahead: g + μ m in place of m."""

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:
        if nesterov and info.data.get("momentum") == 0:
            raise ValueError("needs a momentum above 0")
        return nesterov

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        own = [{**group, "weight_decay": 0.0, "decay": group["weight_decay"]} for group in groups(trained, lr)]
        optimizer = torch.optim.SGD(own, lr=lr, momentum=self.momentum, nesterov=self.nesterov)
        optimizer.register_step_pre_hook(_decay)
        return optimizer

    def width_factors(self, ratio: float) -> Mapping[Role, float]:
        return {"head": 1 / ratio, "gain": ratio, "bias": ratio}


@torch.no_grad()
def _decay(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    """Apply weight decay before the step: lr · λ of the group, whatever the momentum."""
    for group, parameter, _ in with_gradients(optimizer):
        parameter.mul_(1 - group["lr"] * group["decay"])
