"""Activation checkpointing of a block (Chen et al. 2016, arXiv:1604.06174): the backward pass recomputes its
activations, so that each layer keeps only its input, for a third more work."""

from __future__ import annotations

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from zoo.block import Block
from zoo.site import ForwardPass


def recomputed(block: Block, x: Tensor, step: ForwardPass) -> Tensor:
    """`block(x, step)` under activation checkpointing: outputs, gradients and random draws are bitwise the same.

    A pass stores in `step` what later layers share. The recomputation must start from the same state as the first pass,
    or it would skip work, and must store nothing, or losses would count twice. So each runs on a copy of `step`. Only
    the first copy is merged back; the second is marked by `ForwardPass.again`.
    """
    found, first = step.copy(), True

    def run(x: Tensor) -> Tensor:
        nonlocal first
        own = found.copy()
        own.again = not first
        out: Tensor = block(x, own)
        if first:
            first = False
            step.take(own)
        return out

    out: Tensor = checkpoint(run, x, use_reentrant=False)
    return out
