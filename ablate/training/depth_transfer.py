"""Depth transfer: the best learning rate at one depth stays the best at another.

CompleteP, Dey et al. 2025, arXiv:2505.01618, table 1 with α = 1: let the depth L grow, m = L / base_layers, pre-norm
and AdamW. Every branch is added to the stream divided by m, x + f(norm(x)) / m, so that all layers together move it by
Θ(1), at the start and in each step, and no layer learns only its linearisation. Then

- the initial values of a layer do not depend on the depth (`init.output: plain`, or `zero`),
- nor do learning rates, m^(α − 1) = 1 in the paper's table, nor weight decay,
- gradients of a layer's parameters shrink as 1/m, and AdamW's ε with them: 1e-8 / m in blocks.

The factor on branches is a setting of the model (`norm_placement.branch_scale`), not of its training, and
`depth_refusals` requires it. Other placements, optimizers and features that write to the stream are refused: the paper
does not cover them. For widths, see `train.width_transfer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ablate.training.optimizers.adamw import AdamW
from ablate.training.spec import TrainSpec
from zoo.block_spec import BlockSpec
from zoo.spec import ModelSpec

TOLERANCE = 0.01
BLOCKS = "blocks."
"""Prefix of the names of parameters in layers."""


def epsilon_factor(spec: TrainSpec, n_layers: int, name: str) -> float:
    """Factor on AdamW's ε for a parameter."""
    if spec.depth_transfer is None or not name.startswith(BLOCKS):
        return 1.0
    return 1 / spec.depth_transfer.ratio(n_layers)


def depth_refusals(model: ModelSpec, train: TrainSpec) -> list[str]:
    """Why the learning rate does not transfer to a model of this depth; empty if it does."""
    if train.depth_transfer is None:
        return []
    scale = 1 / train.depth_transfer.ratio(model.n_layers)
    blocks = [model.written(name) for name in dict.fromkeys(model.layer_names)]
    inside = (reason for block in blocks for reason in _depth_reasons(block, scale))
    return list(dict.fromkeys([*_whole(model, train), *inside]))


def _whole(model: ModelSpec, train: TrainSpec) -> Iterator[str]:
    if not isinstance(train.optimizer, AdamW):
        yield f"does not support the optimizer {train.optimizer.kind}: set train.optimizer to adamw"
    if model.init.output == "scaled":
        yield "initial values must not depend on the depth: set init.output to plain"
    for name in model.features:
        yield f"does not support {name}"


def _depth_reasons(block: BlockSpec, scale: float) -> Iterator[str]:
    placement = block.norm_placement
    if placement.kind != "pre" or placement.stream_scale != 1:
        yield f"needs norm_placement pre with stream_scale 1, not {placement.kind} with {placement.stream_scale:g}"
    elif not math.isclose(placement.branch_scale, scale, rel_tol=TOLERANCE):
        remedy = f"set norm_placement.branch_scale to {scale:.4g} (base_layers / n_layers)"
        yield f"branches must shrink with depth: {remedy}"
    for name in block.features:
        yield f"does not support {name}"
