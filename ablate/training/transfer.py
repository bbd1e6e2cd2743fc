"""Width and depth transfer: learning rates by role with which the best rate at one size stays the best at another.

Maximal update parametrisation, Yang et al. 2022, arXiv:2203.03466; the argument below is that of Yang, Simon &
Bernstein 2023, arXiv:2310.17813, for the initial values of `zoo.init`. Let D grow, n = D / base_width, with the depth,
the head dimension and the ratio d_ff / D fixed. The goal: at every width the stream, the branches and the logits have
entries of Θ(1), and a step changes them by Θ(lr), at the start and later. A change of W aligned with its input adds up:
if every entry of ΔW is δ, an entry of ΔW·x is Θ(δ·fan_in), since the entries of x are Θ(1) and agree in sign with ΔW.

Matrices that move by about lr per entry, whatever their gradient (AdamW, Lion):

- input, output: fan_in grows with n, so lr / n. They start at N(0, 1/fan_in) (output: that times a constant, or
  zero), which keeps W·x at Θ(1).
- embedding: the table starts at N(0, 1/D) and enters the stream times √D (`embedding_scale: sqrt_d_model`) or through
  a norm, which does the same: an entry of the stream changes by √D·lr, so lr / √n.
- head, untied: it starts at zero, as the rule allows, and its fan_in grows: lr / n.
- head, tied: the table e moves by lr / √n per entry, so that logits e·h change by lr·D / √n, which grows as √n; no rate
  suits both uses of e. With `logit_scale` 1/√n they change by Θ(lr). They start at Θ(1/√n), as μP's readout does, with
  or without it: the gain before the head starts at the remaining factor to 1/√D (see `zoo.init`), and is then learned
  like any other, to Θ(1). Both uses give e gradients of Θ(1/√D), so that neither dominates the other.
- gain, bias: an entry acts on one feature: lr.

Muon: the update has the spectral norm s·lr, and Θ(√(out/in)), a constant in n, is wanted. `original` has
s = √max(1, out/in): lr. `match_rms_adamw` has s = 0.2·√max(out, in), which grows as √n: lr / √n. AdamW's part is as
above.

SGD: updates follow the size of the gradient. The gradient of an entry of the stream is Θ(1/D) (the head's entries are
Θ(1/D) once it has moved, as is the tied table's times logit_scale). So ΔW·x = lr·(1/D)·(x·x) = Θ(lr): input and output
keep lr; the table's gradient is √D·(1/D) and its effect √D times that: lr, tied too; the untied head changes logits by
lr·(h·h) = lr·D: lr / n; a gain's or a bias's gradient is Θ(1/D): n·lr. Clipping by a global norm undoes this, since the
norm of the head's gradient grows as √D: `grad_clip` must be null. The other optimizers ignore a constant factor on
gradients. Two effects are not corrected: a clip that binds at some steps binds at more of them in a wider model, and
AdamW's ε = 1e-8 has to stay small against gradients of Θ(1/D).

Weight decay: a step multiplies by 1 − lr·λ. The base width's lr·λ is kept at every width: if a group's rate is divided,
its λ is multiplied.

Parts and settings that the argument covers declare `Operation.WIDTH_TRANSFER` (see `zoo.compatibility.support`); others
are refused. If the head dimension d grew, the scores' 1/√d would be too large by √n (the rule requires 1/d), hence the
fixed d. Norms must give entries of Θ(1). A scalar that scales many features (`unet_skips`, `value_residual`) has a
gradient that is a sum over them, and a bias of the logits has one of Θ(1): no rate above suits these.

Depth transfer is CompleteP, Dey et al. 2025, arXiv:2505.01618, table 1 with α = 1: let the depth L grow, m = L /
base_layers, pre-norm and AdamW. Every branch is added to the stream divided by m, x + f(norm(x)) / m, so that all
layers together move it by Θ(1), at the start and in each step, and no layer learns only its linearisation. Then

- the initial values of a layer do not depend on the depth (`init.output: plain`, or `zero`),
- nor do learning rates, m^(α − 1) = 1 in the paper's table, nor weight decay,
- gradients of a layer's parameters shrink as 1/m, and AdamW's ε with them: 1e-8 / m in blocks.

The factor on branches is a setting of the model (`norm_placement.branch_scale`), not of its training, and
`depth_refusals` requires it. Other placements, optimizers and features that write to the stream are refused: the paper
does not cover them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ablate.training.optimizers.adamw import AdamW
from ablate.training.spec import TrainSpec
from zoo.block_spec import BlockSpec
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.ffns._dense import Dense
from zoo.mixers.attention import Attention
from zoo.settings.axis import number
from zoo.spec import ModelSpec

TOLERANCE = 0.01
BLOCKS = "blocks."
"""Prefix of the names of parameters in layers."""


def refusals(model: ModelSpec, train: TrainSpec) -> list[str]:
    """Why the learning rates do not transfer to this model as written; empty if they do."""
    if train.width_transfer is None:
        return []
    ratio = train.width_transfer.ratio(model.d_model)
    blocks = [model.written(name) for name in dict.fromkeys(model.layer_names)]
    inside = (reason for block in blocks for reason in _block_reasons(block, model.d_model))
    unknown = (f"does not support {part}" for part in unsupported(model, Operation.WIDTH_TRANSFER))
    return list(dict.fromkeys([*_training(train), *unknown, *_ends(model, ratio), *inside]))


def _training(train: TrainSpec) -> Iterator[str]:
    optimizer = train.optimizer
    if optimizer.width_factors(1.0) is None:
        yield f"does not support the optimizer {optimizer.kind}"
    if not optimizer.ignores_gradient_size and train.grad_clip is not None:
        yield f"the optimizer {optimizer.kind} needs grad_clip: null, since the gradient norm grows with the width"


def _ends(model: ModelSpec, ratio: float) -> Iterator[str]:
    """Reasons at the ends of the stream: embedding and head."""
    if not model.has_embedding_norm and not _near(model.embedding_factor, math.sqrt(model.d_model)):
        yield "the residual stream must start at the same size at every width: set embedding_scale to sqrt_d_model"
    if model.tie_embeddings and not _near(model.logit_scale, ratio**-0.5):
        remedy = f"set logit_scale to {ratio**-0.5:.4g} (√(base_width / d_model)) or tie_embeddings to false"
        yield f"with tied embeddings, logits learn faster in a wider model: {remedy}"


def _block_reasons(block: BlockSpec, d_model: int) -> Iterator[str]:
    """Reasons in a block: widths that must follow the model's, or must not."""
    mixer, ffn = block.mixer, block.ffn
    if isinstance(mixer, Attention) and mixer.head_dim is None:
        yield "the head dimension must not grow with d_model: set block.mixer.head_dim, and heads to d_model / head_dim"
    elif isinstance(mixer, Attention) and mixer.heads * number(mixer.head_dim) != d_model:
        yield f"heads × head_dim must equal d_model: {mixer.heads} × {mixer.head_dim} is not {d_model}"
    if isinstance(ffn, Dense) and isinstance(ffn.d_ff, int):
        yield f"d_ff must grow with d_model: set it to a ratio, such as {ffn.d_ff / d_model:.3g}x"


def _near(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=TOLERANCE)


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
