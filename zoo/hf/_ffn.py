"""Feed-forward layers of transformers models: activation functions under transformers' names, and weights of experts,
which are one tensor for all experts of a layer (transformers 5) or one module for each (4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

import torch

from zoo.errors import UnsupportedError
from zoo.ffns import Ffn
from zoo.ffns._activations import Approximation, OtherActivation, approximated
from zoo.ffns._moe import MoE
from zoo.hf._config import MAJOR, WIDTH, Config, Key, Keys
from zoo.hf._family import Pair, Tensors, fused, same, stacked
from zoo.settings.edits import SpecJson

T = TypeVar("T")

GATED: dict[str, SpecJson] = {
    "silu": {"kind": "swiglu"},
    "gelu": {"kind": "geglu"},
    "gelu_pytorch_tanh": {"kind": "geglu", "approximate": "tanh"},
    "quick_gelu": {"kind": "geglu", "approximate": "sigmoid"},
    "relu": {"kind": "reglu"},
    "sigmoid": {"kind": "glu"},
    **{name: {"kind": "glu", "activation": name} for name in ("relu2", *get_args(OtherActivation))},
}
UNGATED: dict[str, SpecJson] = {
    "relu": {"kind": "relu"},
    "gelu": {"kind": "gelu"},
    "gelu_pytorch_tanh": {"kind": "gelu", "approximate": "tanh"},
    "quick_gelu": {"kind": "gelu", "approximate": "sigmoid"},
    "silu": {"kind": "silu"},
    "relu2": {"kind": "relu2"},
    **{name: {"kind": "mlp", "activation": name} for name in ("sigmoid", *get_args(OtherActivation))},
}
OTHER_NAMES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
    "gelu_accurate": "gelu_pytorch_tanh",
}


def name_of(kind: str, approximate: Approximation = "none", activation: str = "", **others: Any) -> str:
    """Activation name, as experts and convolutions spell it, for this kind of FFN."""
    if kind == "mlp":
        return activation
    return f"{kind}_{activation}" if activation else approximated(kind, approximate)


PLAIN: dict[str, str] = {theirs: name_of(**kind) for theirs, kind in UNGATED.items()}
"""Our names of ungated activations, keyed by transformers' names."""


def ffn(config: Config, key: str, *, gated: bool) -> SpecJson:
    """Spec of the FFN whose activation the config names under `key`. Raises UnsupportedError."""
    return dict(_looked_up(config, key, GATED if gated else UNGATED))


def plain_activation(config: Config, key: str) -> str:
    """Our name of the ungated activation that the config names under `key`. Raises UnsupportedError."""
    return _looked_up(config, key, PLAIN)


def _looked_up(config: Config, key: str, table: Mapping[str, T]) -> T:
    name = config[key]
    canonical = OTHER_NAMES.get(name, name)
    if canonical not in table:
        known = ", ".join([*table, *(other for other, name in OTHER_NAMES.items() if name in table)])
        raise UnsupportedError(key, f"{name!r} cannot be converted, only {known}")
    return table[canonical]


def activation(spec: Ffn, *, gated: bool) -> str:
    """transformers' name of an FFN's activation. Raises UnsupportedError."""
    names, own = theirs_by_name(gated=gated), name_of(**spec.model_dump())
    if own not in names:
        raise UnsupportedError("ffn", f"{spec.kind} has no counterpart")
    return names[own]


def theirs_by_name(*, gated: bool) -> dict[str, str]:
    """transformers' names of activations, keyed by ours (see `name_of`)."""
    if gated:
        return {name_of(**kind): name for name, kind in GATED.items()}
    return {ours: name for name, ours in PLAIN.items()}


PARTS = ("gate", "up", "down")
"""Matrices of an expert."""
MODULES = ("gate_proj", "up_proj", "down_proj")
SHARED, SHARED_WIDTH = "shared_expert_intermediate_size", Key("shared_d_ff", resolved="shared_width")
EXPERT_SIZES: Keys = {
    "moe_intermediate_size": WIDTH,
    "num_experts": "experts",
    "num_experts_per_tok": "top_k",
}
BESIDE_SHARED: Keys = {
    **EXPERT_SIZES,
    "norm_topk_prob": "normalise",
    SHARED: SHARED_WIDTH,
}
"""Keys of experts with DeepSeek's routing beside a shared expert that has its own width."""


def gated_experts(ours: str, theirs: str, width: int, experts: int, modules: Sequence[str] = MODULES) -> Iterator[Pair]:
    """Gated experts without biases. modules: names of an expert's gate, up and down in version 4."""
    if MAJOR >= 5:
        yield fused([f"{ours}.gate.weight", f"{ours}.up.weight"], f"{theirs}.gate_up_proj", [width] * 2, dim=1)
        yield same(f"{ours}.down.weight", f"{theirs}.down_proj")
        return
    for part, module in zip(PARTS, modules, strict=True):
        yield stacked(f"{ours}.{part}.weight", [f"{theirs}.{i}.{module}.weight" for i in range(experts)])


def require_shared(config: Config) -> None:
    """Raise UnsupportedError if the width of the shared expert is zero or null."""
    if not config[SHARED]:
        raise UnsupportedError(SHARED, f"must be positive, not {config[SHARED]!r}")


def balance_loss(config: Config) -> float:
    """Weight of the balance loss in our normalisation; 0 unless the model outputs router logits."""
    weight, top_k = config["router_aux_loss_coef"], config["num_experts_per_tok"]
    return float(weight * top_k / config["num_hidden_layers"]) if config["output_router_logits"] else 0.0


def alternating(ours: Sequence[str], theirs: str) -> Pair:
    """Two tensors of ours, interleaved along the last dimension of theirs; matrices are transposed."""

    def split(x: Tensors) -> Tensors:
        return [_swap(x[0][..., ::2]), _swap(x[0][..., 1::2])]

    def join(x: Tensors) -> Tensors:
        return [torch.stack([_swap(part) for part in x], dim=-1).flatten(-2)]

    return Pair(tuple(ours), (theirs,), split, join)


def _swap(x: torch.Tensor) -> torch.Tensor:
    """(E, a, b) → (E, b, a); biases (E, a) are returned as they are."""
    return x.transpose(1, 2) if x.dim() == 3 else x


def expert_act(spec: MoE) -> str:
    """transformers' name of the experts' activation. Raises UnsupportedError."""
    names = theirs_by_name(gated=True)
    if spec.activation not in names:
        raise UnsupportedError("ffn.activation", f"{spec.activation} has no counterpart")
    return names[spec.activation]
