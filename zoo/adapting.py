"""Adaptation after each update of a model's weights, beside the optimizer's step.

A forward pass changes nothing that another one reads, so that it can be computed again, for a part of a batch, or by
several processes. What a training pass learns about a batch is counted, and acted upon once, after the update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from zoo.sphere import project

if TYPE_CHECKING:
    from zoo.model import Decoder


class Adapting(nn.Module, ABC):
    """A module that adapts its buffers to what training passes counted since the last update."""

    counts: Tensor | None
    """Whole numbers, which add up over the parts of a batch; None where nothing is counted."""

    @abstractmethod
    def adapt(self, counts: Tensor) -> None:
        """counts: those of the whole batch."""


def counts_of(model: nn.Module) -> list[Tensor]:
    """The counts of a model's modules. Processes that train on parts of a batch have to add them up before
    `after_update`; to start a batch over, set them to zero."""
    return [module.counts for module in model.modules() if isinstance(module, Adapting) and module.counts is not None]


@torch.no_grad()
def after_update(model: Decoder, *, constrain: bool = True) -> None:
    """Move what adapts; call it after each step of the optimizer.

    constrain: whether to put the weights back to what the spec holds them to (`unit_weights`).
    """
    if constrain and model.spec.unit_weights:
        project(model)
    for module in model.modules():
        if isinstance(module, Adapting) and module.counts is not None:
            module.adapt(module.counts)
            module.counts.zero_()
