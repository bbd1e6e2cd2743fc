"""Base of gated attention units: one query and key head for all features, and a gate in place of an FFN."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import under
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, number
from zoo.settings.field_tags import HeadFeatures
from zoo.site import ForwardPass


class GatedUnit(Mixer):
    """U, V, Z = silu(W x), with e, e and s features; out = W_o (U ⊙ the attention output over V)."""

    degree: ClassVar[int] = 6
    """Polynomial degree in the activations: U once, V once, and Q and K squared."""
    readings: ClassVar[int]
    """Number of queries and keys computed from Z, together."""

    head_dim: HeadFeatures = 128
    """s: features of the one head of queries and keys."""
    v_dim: HeadFeatures | None = None
    """e: features of values and gates; null for 2 d_model."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE()
    """Position encoding of the head of queries and keys."""

    def resolve(self, d_model: int) -> Self:
        with under("position"):
            self.position.check(self.head_dim)
        return self.model_copy(update={"v_dim": self.v_dim or 2 * d_model})

    @property
    def value_features(self) -> int:
        """e of a resolved spec."""
        return number(self.v_dim)

    def matrices(self, d_model: int) -> int:
        """Number of weights that are used once per token."""
        return d_model * (3 * self.value_features + self.head_dim)

    def vectors(self) -> int:
        """Number of all other parameters."""
        return 2 * self.readings * self.head_dim

    def positions(self) -> tuple[tuple[Position, int], ...]:
        return ((self.position, 1),)


class GatedUnitLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"scale": "gain", "offset": "bias"}

    def __init__(self, spec: GatedUnit, d_model: int) -> None:
        super().__init__()
        features = spec.value_features
        self.u = Linear(d_model, features, role="input")
        self.v = Linear(d_model, features, role="input", values=True)
        self.z = Linear(d_model, spec.head_dim, role="input")
        self.o = Linear(features, d_model, role="output")
        self.scale = nn.Parameter(torch.ones(spec.readings, spec.head_dim))
        self.offset = nn.Parameter(torch.zeros(spec.readings, spec.head_dim))
        self.position = spec.position.build(spec.head_dim, 1)

    def queries_and_keys(self, x: Tensor, step: ForwardPass) -> list[Tensor]:
        """γ ⊙ Z + β with positions applied, queries and keys alternating: each (B, 1, T, s)."""
        z = F.silu(self.z(x))[:, None]
        made = [z * scale + offset for scale, offset in zip(self.scale, self.offset, strict=True)]
        turn = (self.position.rotate_queries, self.position.rotate_keys)
        return [turn[i % 2](each, step) for i, each in enumerate(made)]

    def _write(self, x: Tensor, read: Tensor) -> Tensor:
        """W_o (U ⊙ read). read: (B, T, e) → (B, T, D)."""
        return self.o(F.silu(self.u(x)) * read)
