"""Schedule-Free AdamW, which torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import field_validator
from torch import Tensor

from ablate.training.optimizers import EPS, Betas, Group, Optimizer, Trained, Updates, groups, with_gradients
from ablate.training.optimizers.adamw import per_entry
from ablate.training.weights import ScoredWeights
from zoo.init import Role


class ScheduleFree(Optimizer):
    """z ← z − lr (g / (√v̂ + 1e-8) + λ y), x ← (1 − c) x + c z, y = (1 − β₁) z + β₁ x. g is the gradient at y, v̂ the
    bias-corrected moving average of g². Defazio et al. 2024, arXiv:2405.15682.

    c = lr² / Σ lr², sums over all steps so far, so that x is the mean of all z, with less weight on those of warm-up.
    Training moves y; x is scored and stored. The average takes the place of a decaying rate: `train.schedule` must be
    `constant`, after warm-up. According to the authors, the best rate is 1 to 10 times that of AdamW with a schedule.
    """

    kind: Literal["schedule_free"] = "schedule_free"
    averages: ClassVar[bool] = True
    decays_cautiously: ClassVar[bool] = True
    betas: Betas = (0.9, 0.999)
    """β₁, the weight of the average x in the point y at which gradients are taken, above 0 (long runs may need 0.95 or
    0.98), and the weight of the past in the average of g²."""

    @field_validator("betas")
    @classmethod
    def _averaging(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if betas[0] == 0:
            raise ValueError("the first must be above 0: at 0 the average has no weight where gradients are taken")
        return betas

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        return ScheduleFreeUpdates(groups(trained, lr), self.betas, self.cautious_decay)

    def width_factors(self, ratio: float) -> Mapping[Role, float]:
        return per_entry(ratio)


class ScheduleFreeUpdates(torch.optim.Optimizer, ScoredWeights):
    """Parameters are y. State per parameter: z, and `square`, the average of g²; x follows from y and z. State per
    group: number of steps, largest rate so far, and the sum of squared rates."""

    def __init__(self, param_groups: list[Group], betas: tuple[float, float], cautious: bool = False) -> None:
        super().__init__(param_groups, {"eps": EPS, "steps": 0, "largest_lr": 0.0, "squared_lr": 0.0})
        (self.beta1, self.beta2), self.cautious = betas, cautious

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update from the existing gradients; `closure` is ignored."""
        for group in self.param_groups:
            group["steps"] += 1
            group["largest_lr"] = max(group["lr"], group["largest_lr"])
            group["squared_lr"] += group["largest_lr"] ** 2
        for group, y, gradient in with_gradients(self):
            state = self.state[y]
            if not state:
                state["z"], state["square"] = y.detach().clone(), torch.zeros_like(y)
            square = state["square"].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            root = square.div(1 - self.beta2 ** group["steps"]).sqrt_().add_(group["eps"])
            update = gradient / root
            decayed = y * (gradient * y >= 0) if self.cautious else y
            update.add_(decayed, alpha=group["weight_decay"])
            share = group["largest_lr"] ** 2 / group["squared_lr"] if group["squared_lr"] else 0.0
            # With x = (y − (1 − β₁) z) / β₁, this is y of the new x and z, without either.
            y.lerp_(state["z"], share).add_(update, alpha=group["lr"] * (self.beta1 * (1 - share) - 1))
            state["z"].sub_(update, alpha=group["lr"])

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter that has moved, and its x."""
        for parameter, state in self.state.items():
            y = parameter.detach()
            yield y, y.lerp(state["z"], 1 - 1 / self.beta1)
