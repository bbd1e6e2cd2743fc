"""Parts that mixers share around their heads: biases, norms, output and forget gates, and value residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, WithJsonSchema
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.conv import on_text
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.norms import Norm
from zoo.site import ForwardPass

if TYPE_CHECKING:
    from zoo.mixers import Mixer


NAMES = ("q", "k", "v", "o")
GATE = "gate"
"""Name of the output gate's bias, which `true` leaves out and only a list can include."""


def _check(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return NAMES if value else ()
    if isinstance(value, list | tuple) and all(name in (*NAMES, GATE) for name in value):
        return tuple(name for name in (*NAMES, GATE) if name in value)
    raise ValueError("must be true, false or a list of projections among q, k, v, o and gate")


Biases = Annotated[
    tuple[str, ...],
    Field(strict=False),
    BeforeValidator(_check),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"enum": [*NAMES, GATE]}}]}),
]


def check_kv_heads(heads: int, kv_heads: int) -> None:
    """Raise SpecError unless every kv head serves the same number of query heads."""
    if heads % kv_heads:
        raise SpecError("kv_heads", f"{kv_heads} kv heads do not divide {heads} heads")


def split(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·d) → (B, H, T, d)."""
    out: Tensor = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    return out


def split_by(x: Tensor, features: int) -> Tensor:
    """(B, T, H·d) → (B, H, T, d), d the features of a head."""
    return split(x, x.shape[-1] // features)


def default_head_dim(heads: int, d_model: int) -> int:
    """Default features per head, d_model / heads. Raises SpecError if heads do not divide d_model."""
    if d_model % heads:
        raise SpecError("heads", f"{heads} heads do not divide d_model {d_model}; set head_dim to choose it freely")
    return d_model // heads


class NormPerHead(nn.Module):
    """(B, H, T, d) → (B, H, T, d): one norm per head, with its own parameters."""

    def __init__(self, norm: Norm, heads: int, head_dim: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm.build(head_dim) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([norm(head) for norm, head in zip(self.norms, x.unbind(1), strict=True)], dim=1)


Gate = Literal["feature", "head", "feature_softplus", "head_softplus"]
SOFTPLUS = "_softplus"


def gate_features(kind: Gate | None, heads: int, head_dim: int) -> int:
    """Number of gates per token."""
    if kind is None:
        return 0
    return heads if kind.startswith("head") else heads * head_dim


class OutputGate(nn.Module):
    """heads: (B, T, H·d) ⊙ σ(W x (+ b)), x: (B, T, D), one gate per feature or per head (Qiu et al. 2025,
    arXiv:2505.06708), or with softplus in place of σ (Laguna, Poolside 2026,
    https://huggingface.co/poolside/Laguna-XS.2)."""

    def __init__(self, kind: Gate, d_model: int, heads: int, head_dim: int, bias: bool) -> None:
        super().__init__()
        self.repeat = head_dim if kind.startswith("head") else 1
        self.softplus = kind.endswith(SOFTPLUS)
        self.project = Linear(d_model, gate_features(kind, heads, head_dim), bias=bias, role="input")

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        read = self.project(x)
        gate: Tensor = F.softplus(read) if self.softplus else read.sigmoid()
        return heads * gate.repeat_interleave(self.repeat, dim=-1)


class ValueResidual(nn.Module):
    """v ← λ₁ v + λ₂ v_first, with learned λ, initially ½. Zhou et al. 2024, arXiv:2410.17897 (learnable ResFormer).

    v: (B, K, T, d); v_first are the values of the first layer with a value residual, before its own mixing. Unlike in
    the paper, that layer has λ too: they only scale its values by λ₁ + λ₂, initially 1, which W_v could do as well.
    """

    roles: ClassVar = {"weights": "gain"}
    initial: ClassVar = {"weights": 0.5}

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, v: Tensor, step: ForwardPass) -> Tensor:
        return self.weights[0] * v + self.weights[1] * first_values(v, step)


def first_values(v: Tensor, step: ForwardPass) -> Tensor:
    """Values stored by the first layer of the pass that calls this: for that layer, its own v."""
    return step.once("first values", lambda: v)


class ForgetGate(nn.Module):
    """x: (B, T, D) → log f: (B, H, T, 1), f = σ(W x + b), one number per head; 0 on padding."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.project = Linear(d_model, heads, bias=True, role="input")

    def forward(self, x: Tensor, step: ForwardPass) -> Tensor:
        raw = self.project(x)
        logs = F.logsigmoid(raw.to(torch.promote_types(raw.dtype, torch.float32)))
        return on_text(logs, step).transpose(1, 2)[..., None]


def decay_bias(logs: Tensor, places: Tensor, step: ForwardPass) -> Tensor:
    """Sum of log f over the tokens after key j, up to query i: (B, H, T, S). logs: log f, (B, H, S, 1), of keys at
    `places` (S,), of which the T latest are the step's. Entries for keys after the query are meaningless and masked."""
    logs = logs[..., 0].to(torch.promote_types(logs.dtype, torch.float32))
    if places is step.index:
        total = logs.cumsum(dim=-1)
        return total[..., :, None] - total[..., None, :]
    # A rolling buffer may hold its tokens in any order.
    order = places.argsort()
    total = logs[..., order].cumsum(dim=-1)
    queries = total[..., total.shape[-1] - step.index.shape[0] :]
    return queries[..., :, None] - total[..., order.argsort()][..., None, :]


# Reuse of a lower layer's keys and values in place of a layer's own.
#
# A layer with `reuse_kv` projects only queries and attends to the keys and values of the nearest layer below it that
# has its own, with the same heads, features, positions, window and sparsity. It caches nothing. A pattern of blocks
# says which layers reuse: every second one in Cross-Layer Attention (Brandon et al. 2024, arXiv:2405.12981; Hunyuan-
# Large, arXiv:2411.02265); the upper half, all from one layer, in YOCO (Sun et al. 2024, arXiv:2405.05254); the last
# layers, from the last full or the last windowed layer below them, in Gemma 3n.
#
#     block: {mixer: {kind: attention}}
#     blocks: {reader: {mixer.reuse_kv: true}}
#     pattern: [block, reader]


def lend(step: ForwardPass, kv: str, keys: Tensor, values: Tensor, places: Tensor) -> None:
    """Store keys, values: (B, K, S, d), and places: (S,), under `kv` for layers above; replaces a lower layer's."""
    if step.lent is not None:
        step.lent[kv] = keys, values, places


def borrowed(step: ForwardPass, kv: str) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and places of the nearest layer below with this `kv`. Raises ValueError outside a model's pass."""
    if step.lent is None:
        raise ValueError("a layer with reuse_kv reads a lower layer's keys and values: run it inside its model")
    return step.lent[kv]


def check_reuse(conv: int | None, value_residual: bool, bias: Sequence[str]) -> None:
    """Raise SpecError for settings of keys and values, which a layer with `reuse_kv` does not have."""
    for name, given in (("conv", conv), ("value_residual", value_residual), ("bias", {"k", "v"} & set(bias))):
        if given:
            raise SpecError(name, "with reuse_kv, keys and values are a lower layer's, whose settings apply")


def check_lenders(mixers: Sequence[tuple[str, Mixer]]) -> None:
    """Raise SpecError if a layer reuses keys and values that no layer below has. mixers: path and mixer per layer."""
    if not any(mixer.borrows for _, mixer in mixers):
        return
    lent = set()
    for where, mixer in mixers:
        if not mixer.borrows:
            lent.add(mixer.kv)
        elif mixer.kv not in lent:
            reason = (
                "no lower layer has its own keys and values with the same kind, heads, positions, window and sparsity"
            )
            raise SpecError(f"{where}.mixer.reuse_kv", reason)
