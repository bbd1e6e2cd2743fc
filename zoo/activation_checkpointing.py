"""A block whose activations are computed again for its backward pass, in place of being kept (Chen et al. 2016,
arXiv:1604.06174): memory of one block's input per layer, for a third more work."""

from __future__ import annotations

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from zoo.block import Block
from zoo.site import ForwardPass


def recomputed(block: Block, x: Tensor, step: ForwardPass) -> Tensor:
    """`block(x, step)`, with the same bits and gradients, and the same draws of chance.

    A pass leaves in `step` what later layers share. The second pass must find what the first one found, or it would
    compute less, and must leave nothing, or losses would count twice. So each has a step of its own, only what the
    first leaves is kept, and the second knows that it is one (`ForwardPass.again`).
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
