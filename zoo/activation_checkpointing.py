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
    or it would skip work, and must store nothing, or losses would count twice. So both run on a copy of `step`, which
    is an output like any other: that of the recomputation is dropped. State that outlives the function, such as a flag
    that tells the two apart, would be a side effect, at which torch.compile breaks the graph.
    """
    found = step.copy()

    def run(x: Tensor) -> tuple[Tensor, ForwardPass]:
        own = found.copy()
        return block(x, own), own

    out, own = checkpoint(run, x, use_reentrant=False)
    step.take(own)
    return out  # type: ignore[no-any-return]
