"""Activations of feed-forward layers: act(up), or act(gate) ⊙ up."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[..., Tensor]
"""Function of one tensor, or of gate and up for a gated layer."""

Approximation = Literal["none", "tanh", "sigmoid"]
"""Form of GELU: none z·Φ(z); tanh ½z(1 + tanh(√(2/π)(z + 0.044715z³))); sigmoid z·σ(1.702z). arXiv:1606.08415 §2."""


def relu2(z: Tensor) -> Tensor:
    """max(0, z)². So et al. 2021 (Primer), arXiv:2109.08668."""
    return F.relu(z).square()


def gelu_tanh(z: Tensor) -> Tensor:
    """½z(1 + tanh(√(2/π)(z + 0.044715z³)))."""
    return F.gelu(z, approximate="tanh")


def gelu_sigmoid(z: Tensor) -> Tensor:
    """z·σ(1.702z)."""
    return z * torch.sigmoid(1.702 * z)


def gelu_10(z: Tensor) -> Tensor:
    """z·Φ(z), at most 10. Wu et al. 2020, arXiv:2004.09602."""
    return F.gelu(z).clamp(-10.0, 10.0)


def laplace(z: Tensor) -> Tensor:
    """½(1 + erf((z − μ)/(σ√2))), μ = √½, σ = √(1/4π), both rounded as in transformers. Ma et al. 2022 (Mega),
    arXiv:2209.10655 §3.2."""
    return 0.5 * (1 + torch.erf((z - 0.707107) / (0.282095 * math.sqrt(2))))


def linear(z: Tensor) -> Tensor:
    """z."""
    return z


def gate_with(activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
    """act(gate) ⊙ up."""
    return activation(gate) * up


def clamped_swiglu(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    """g·σ(αg) ⊙ (u + 1), with g = min(gate, limit) and u = up clamped to ± limit. gpt-oss, arXiv:2508.10925."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def sparse(z: Tensor, quantile: float) -> Tensor:
    """max(0, z − (μ + σ·quantile)), with mean μ and standard deviation σ over the last dimension. If z is normal, a
    fraction Φ(quantile) of it becomes zero. Gemma 3n; You et al. 2025 (Spark Transformer, statistical top-k),
    arXiv:2506.06644."""
    wide = z.float()
    threshold = wide.mean(-1, keepdim=True) + quantile * wide.std(-1, keepdim=True, unbiased=False)
    return F.relu(wide - threshold).to(z.dtype)


OtherActivation = Literal["gelu_10", "hardswish", "laplace", "leaky_relu", "linear", "mish", "relu6", "tanh"]
"""Activations without an FFN kind of their own, by their names in transformers. Excluded are `prelu`, which has
learned parameters (so has `xielu`, a kind of its own), and `sqrtsoftplus`, a router score whose gradient is NaN where
eᶻ underflows to 0."""

PlainActivation = Literal[
    "relu", "relu2", "silu", "gelu", "gelu_tanh", "gelu_sigmoid", "sigmoid", "elu", OtherActivation
]
"""Names of ungated activations, act(up)."""

GatedActivation = Literal[
    "glu", "reglu", "swiglu", "geglu", "geglu_tanh", "geglu_sigmoid", "clamped_swiglu",
    "glu_relu2", "glu_gelu_10", "glu_hardswish", "glu_laplace", "glu_leaky_relu", "glu_linear", "glu_mish",
    "glu_relu6", "glu_tanh",
]  # fmt: skip
"""Names of gated activations, act(gate) ⊙ up."""

UNGATED: dict[str, Activation] = {
    "relu": F.relu,
    "relu2": relu2,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
    "sigmoid": torch.sigmoid,
    "gelu_10": gelu_10,
    "hardswish": F.hardswish,
    "laplace": laplace,
    "leaky_relu": F.leaky_relu,
    "linear": linear,
    "mish": F.mish,
    "relu6": F.relu6,
    "tanh": torch.tanh,
    "elu": F.elu,
}
OF_GATES = {
    "glu": "sigmoid",
    "reglu": "relu",
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "geglu_sigmoid": "gelu_sigmoid",
    **{f"glu_{name}": name for name in ("relu2", *get_args(OtherActivation))},
}
"""Gated activation → activation of its gate."""
GATED: dict[str, Activation] = {
    **{name: partial(gate_with, UNGATED[plain]) for name, plain in OF_GATES.items()},
    "clamped_swiglu": clamped_swiglu,
}


def approximated(name: str, approximate: Approximation) -> str:
    """Name of a form of GELU or GEGLU in the tables above."""
    return name if approximate == "none" else f"{name}_{approximate}"
