"""Lion, which torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from ablate.training.optimizers import Betas, Group, Optimizer, Trained, Updates, groups, with_gradients
from ablate.training.optimizers.adamw import per_entry
from zoo.init import Role


class Lion(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · sign(β₁ m + (1 − β₁) g), then m ← β₂ m + (1 − β₂) g. Chen et al. 2023, arXiv:2302.06675.

    Every entry moves by lr, so that the best lr is 3 to 10 times smaller than AdamW's, and the best weight decay larger
    by the same factor, according to the paper. Settings are not converted.
    """

    kind: Literal["lion"] = "lion"
    betas: Betas = (0.9, 0.99)
    """Weights of the past in the update (β₁), and in the momentum (β₂)."""

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        return LionUpdates(groups(trained, lr), self.betas)

    def width_factors(self, ratio: float) -> Mapping[Role, float]:
        return per_entry(ratio)


class LionUpdates(torch.optim.Optimizer):
    """Lion's updates. State per parameter: one tensor, `momentum`."""

    def __init__(self, param_groups: list[Group], betas: tuple[float, float]) -> None:
        super().__init__(param_groups, {"betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update from the existing gradients; `closure` is ignored."""
        for group, parameter, gradient in with_gradients(self):
            rate, (beta1, beta2) = group["lr"], group["betas"]
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"]
            update = momentum.lerp(gradient, 1 - beta1).sign_()
            parameter.mul_(1 - rate * group["weight_decay"]).add_(update, alpha=-rate)
            momentum.lerp_(gradient, 1 - beta2)
