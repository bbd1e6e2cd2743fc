"""Optimisers: AdamW whose weight decay follows parameter roles."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ablate.training.spec import TrainSpec

DECAYED = frozenset({"embedding", "input", "output", "head"})


def adamw(model: nn.Module, roles: Mapping[str, str], spec: TrainSpec) -> torch.optim.AdamW:
    """AdamW with decoupled weight decay on matrices only. Loshchilov & Hutter 2017, arXiv:1711.05101.

    `roles` names the role of every parameter of `model`. The learning rate is set at every step by the schedule.
    """
    decayed, rest = split_by_role(model, roles)
    groups = [
        {"params": decayed, "weight_decay": spec.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=spec.lr,
        betas=spec.betas,
        fused=all(p.is_floating_point() for p in model.parameters()),
    )


def split_by_role(model: nn.Module, roles: Mapping[str, str]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Trainable parameters with and without weight decay. A shared parameter counts once."""
    decayed: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if roles[name] in DECAYED else rest).append(parameter)
    return decayed, rest
