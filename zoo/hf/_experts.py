"""Weights of experts: one tensor for all experts of a layer (transformers 5), or one module for each (4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.hf._config import Config
from zoo.hf._ffn import theirs_by_name
from zoo.hf._keys import WIDTH, Key, Keys
from zoo.hf._pairs import Pair, Tensors, fused, same, stacked
from zoo.hf._version import MAJOR

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
