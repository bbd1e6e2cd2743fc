"""Routers of mixtures of experts: they choose each token's experts and weight their outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.init import Linear

NORM_EPS = 1e-5
"""Epsilon of the norm in `RouterMLP`."""


@dataclass(frozen=True)
class Routing:
    """Each token's experts.

    logits, probabilities: (..., E), float32; probabilities sum to one. chosen, weights: (..., k).
    counted: (..., k), the experts that the balance loss counts for the token.
    shared: (..., S), weights of the shared experts; None if they are unweighted.
    """

    logits: Tensor
    probabilities: Tensor
    chosen: Tensor
    weights: Tensor
    counted: Tensor
    shared: Tensor | None = None


class Router(nn.Module, ABC):
    """x: (..., D), tokens: (...,) int64, token ids → `Routing`."""

    @abstractmethod
    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        """tokens: None in a pass inside the model over selected tokens or chunks; routers that read ids then raise."""

    def count(self, load: Tensor) -> None:
        """Record a training pass. load: (E,), number of tokens sent to each expert."""


class LinearRouter(Router):
    """A router with one logit per expert. Logits are float32 whatever the model's dtype, since rounding them can change
    the choice."""

    def __init__(self, d_model: int, experts: int, bias: bool = False, hidden: int | None = None) -> None:
        """hidden: R of a `RouterMLP` before the logits; None to read the stream itself."""
        super().__init__()
        self.mlp = RouterMLP(d_model, hidden) if hidden is not None else None
        self.weight = nn.Parameter(torch.empty(experts, hidden or d_model))
        self.bias = nn.Parameter(torch.zeros(experts)) if bias else None
        self.roles = {"weight": "input", "bias": "bias"}

    def logits(self, x: Tensor) -> Tensor:
        """(..., D) → (..., E) float32."""
        with torch.autocast(x.device.type, enabled=False):
            read = x.float() if self.mlp is None else self.mlp(x.float())
            bias = None if self.bias is None else self.bias.float()
            return F.linear(read, self.weight.float(), bias)


class RouterMLP(nn.Module):
    """x: (..., D) float32 → (..., R): gelu(W₂ gelu(W₁ (rms(W₀ x + b₀) ⊙ g) + b₁) + b₂)."""

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, d_model: int, hidden: int) -> None:
        super().__init__()
        self.down = Linear(d_model, hidden, bias=True, role="input")
        self.gain = nn.Parameter(torch.ones(hidden))
        self.first = Linear(hidden, hidden, bias=True, role="input")
        self.second = Linear(hidden, hidden, bias=True, role="input")

    def forward(self, x: Tensor) -> Tensor:
        read = F.rms_norm(_in_float32(self.down, x), self.gain.shape, self.gain.float(), NORM_EPS)
        return F.gelu(_in_float32(self.second, F.gelu(_in_float32(self.first, read))))

    @staticmethod
    def sizes(d_model: int, hidden: int) -> tuple[int, int]:
        """(all parameters, parameters of the matrices)."""
        matrices = d_model * hidden + 2 * hidden**2
        return matrices + 4 * hidden, matrices


def _in_float32(layer: Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight.float(), None if layer.bias is None else layer.bias.float())


def balance_loss(
    routing: Routing, over: Literal["batch", "sequence"], penalties: Sequence[float] | None = None
) -> Tensor:
    """E/k · Σ_e η_e f_e P_e, with f and P averaged over the batch, or over each sequence, whose losses are then
    averaged. penalties: η, (E,); None for 1."""
    tokens = (0, 1) if over == "batch" else (1,)
    probabilities = routing.probabilities
    sent = torch.zeros_like(probabilities).scatter(-1, routing.counted, 1.0)
    even = probabilities.shape[-1] / routing.counted.shape[-1]
    products = sent.mean(tokens) * probabilities.mean(tokens)
    if penalties is not None:
        products = products * products.new_tensor(penalties)
    return even * products.sum(-1).mean()
