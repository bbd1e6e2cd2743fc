"""Updates of buffers after each optimizer step, such as the biases that balance experts.

A forward pass changes nothing that another one reads, so passes can be recomputed, or split over micro-batches and
processes. Training passes only accumulate counts; modules act on the totals once, after the optimizer step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from zoo.init import project

if TYPE_CHECKING:
    from zoo.model import Decoder


class Adapting(nn.Module, ABC):
    """A module that adapts its buffers to the counts accumulated by training passes since the last update."""

    counts: Tensor | None
    """Integer counts, which sum over the parts of a batch; None if nothing is counted."""

    @abstractmethod
    def adapt(self, counts: Tensor) -> None:
        """Update the buffers. counts: totals over the whole batch."""


def counts_of(model: nn.Module) -> list[Tensor]:
    """Counts of a model's modules. Processes that train on parts of a batch must sum them before `after_update`; zero
    them to restart a batch."""
    return [module.counts for module in model.modules() if isinstance(module, Adapting) and module.counts is not None]


@torch.no_grad()
def after_update(model: Decoder, *, constrain: bool = True) -> None:
    """Adapt the model's buffers and zero the counts; call it after each optimizer step.

    constrain: whether to also project the weights back to unit vectors, if the spec has `unit_weights`.
    """
    if constrain and model.spec.unit_weights:
        project(model)
    for module in model.modules():
        if isinstance(module, Adapting) and module.counts is not None:
            module.adapt(module.counts)
            module.counts.zero_()
