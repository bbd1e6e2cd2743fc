"""Weight decay only where it agrees with the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ablate.training.optimizers import Group, Optimizer, StateDict, Trained, Updates


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
