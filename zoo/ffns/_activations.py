"""Hidden features of a feed-forward layer: act(up), or act(gate) ⊙ up."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[..., Tensor]
"""Of one tensor, or of gate and up for a gated layer."""

Approximation = Literal["none", "tanh", "sigmoid"]
"""Of GELU: none z·Φ(z); tanh ½z(1 + tanh(√(2/π)(z + 0.044715z³))); sigmoid z·σ(1.702z). arXiv:1606.08415 §2."""


def relu2(z: Tensor) -> Tensor:
    """max(0, z)². So et al. 2021 (Primer), arXiv:2109.08668."""
    return F.relu(z).square()


def gelu_tanh(z: Tensor) -> Tensor:
    """½z(1 + tanh(√(2/π)(z + 0.044715z³)))."""
    return F.gelu(z, approximate="tanh")


def gelu_sigmoid(z: Tensor) -> Tensor:
    """z·σ(1.702z)."""
    return z * torch.sigmoid(1.702 * z)


def glu(gate: Tensor, up: Tensor) -> Tensor:
    """σ(gate) ⊙ up."""
    return torch.sigmoid(gate) * up


def reglu(gate: Tensor, up: Tensor) -> Tensor:
    """max(0, gate) ⊙ up."""
    return F.relu(gate) * up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU(gate) ⊙ up."""
    return F.silu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """GELU(gate) ⊙ up."""
    return F.gelu(gate) * up


def geglu_tanh(gate: Tensor, up: Tensor) -> Tensor:
    """GELU(gate) ⊙ up, by tanh."""
    return gelu_tanh(gate) * up


def geglu_sigmoid(gate: Tensor, up: Tensor) -> Tensor:
    """GELU(gate) ⊙ up, by σ."""
    return gelu_sigmoid(gate) * up


def clamped_swiglu(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    """g·σ(αg) ⊙ (u + 1), with g = min(gate, limit) and u = up clamped to ± limit. gpt-oss, arXiv:2508.10925."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def sparse(z: Tensor, share: float) -> Tensor:
    """max(0, z − (μ + σ Φ⁻¹(share))), with mean μ and standard deviation σ of the last dimension: were z normal, this
    share of it would be zero. Gemma 3n; You et al. 2025 (Spark Transformer, statistical top-k), arXiv:2506.06644."""
    wide = z.float()
    threshold = wide.mean(-1, keepdim=True) + NormalDist().inv_cdf(share) * wide.std(-1, keepdim=True, unbiased=False)
    return F.relu(wide - threshold).to(z.dtype)


PlainActivation = Literal["relu", "relu2", "silu", "gelu", "gelu_tanh", "gelu_sigmoid"]
"""Those of one tensor, by name."""

UNGATED: dict[str, Activation] = {
    "relu": F.relu,
    "relu2": relu2,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
}
GATED: dict[str, Activation] = {
    "glu": glu,
    "reglu": reglu,
    "swiglu": swiglu,
    "geglu": geglu,
    "geglu_tanh": geglu_tanh,
    "geglu_sigmoid": geglu_sigmoid,
    "clamped_swiglu": clamped_swiglu,
}


def approximated(name: str, approximate: Approximation) -> str:
    """The name of GELU or GEGLU in the tables above."""
    return name if approximate == "none" else f"{name}_{approximate}"
