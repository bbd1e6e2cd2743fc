"""Lightning attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.errors import SpecError
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._heads import NormPerHead, split
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, check_turning
from zoo.mixers._scan import scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions import Position
from zoo.positions.nope import NoPE
from zoo.settings.axis import Choice, Examples, is_off
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass, LayerSite


class LightningAttention(LinearHeads):
    """S_t = e^(−s) S_{t−1} + k_t v_tᵀ, out = W_o (norm(S_tᵀ q_t) ⊙ σ(W_g x)), q, k, v = silu(W x), and a fixed slope
    s = 2^(−8h/H) (1 − l/(L − 1)) for head h from 1, in layer l of L from 0. MiniMax 2025 (MiniMax-01), arXiv:2501.08313
    §2.2, after Qin et al. 2024, arXiv:2401.04658.

    The norm is over all heads at once. As in the released model, 10⁻⁵ is added to L − 1 and to the second factor, so
    that the last layer forgets a little too.

    Ling 2.5 (Inclusion AI 2026, arXiv:2606.15079 §2.1) has q = rope(norm(W x)), k likewise, and v = W x: `activation`
    null, `qk_norm`, `position`; the output's norm over `norm_groups`; and layers counted from −1. Its factor 1/√d on
    queries is left out, since the output's norm cancels it.
    """

    examples: ClassVar[Examples] = (
        {"chunk": 8, "head_dim": 6},
        {
            "chunk": 8,
            "head_dim": 6,
            "activation": None,
            "qk_norm": "rmsnorm",
            "position": {"kind": "rope", "fraction": 0.5},
            "norm_groups": 2,
            "first_layer": -1,
        },
    )
    kind: Literal["lightning"] = "lightning"
    supports: ClassVar[Operations] = OF_MODULES
    activation: PlainActivation | None = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Activation of queries, keys and values; null for none."""
    qk_norm: Annotated[Norm, Choice("zoo.norms")] | None = Field(default=None, exclude_if=is_off)
    """Norm of each head of queries and keys, with one gain for all heads."""
    position: Annotated[Position, Choice("zoo.positions")] = Field(
        default=NoPE(), exclude_if=lambda scheme: scheme == NoPE()
    )
    """Rotary scheme for queries and keys; a bias on scores is not possible."""
    output_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of the concatenated heads' outputs, before the gate σ(W_g x)."""
    norm_groups: Annotated[PositiveInt, MaxInTests(4)] = Field(default=1, exclude_if=lambda groups: groups == 1)
    """Number of feature groups that the output's norm treats separately, each with its own gains."""
    first_layer: Literal[0, -1] = Field(default=0, exclude_if=is_off)
    """Value of l in the first layer."""

    def resolve(self, d_model: int) -> Self:
        spec = super().resolve(d_model)
        check_turning(self.position, spec.key_features, self.kind)
        if spec.inner % self.norm_groups:
            raise SpecError("norm_groups", f"{self.norm_groups} groups do not divide {spec.inner} features")
        return spec

    @property
    def inner(self) -> int:
        """Features of all heads of a resolved spec."""
        return self.heads * self.value_features

    def build(self, site: LayerSite) -> MixerLayer:
        return LightningAttentionLayer(self, site)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.inner

    def vectors(self, d_model: int) -> int:
        per_head = 0 if self.qk_norm is None else 2 * self.qk_norm.parameters(self.key_features)
        return per_head + self.norm_groups * self.output_norm.parameters(self.inner // self.norm_groups)


class LightningAttentionLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: LightningAttention, site: LayerSite) -> None:
        super().__init__(spec, site.d_model)
        self.chunk, self.groups = spec.chunk, spec.norm_groups
        self.activation = UNGATED[spec.activation] if spec.activation else nn.Identity()
        self.gate = Linear(site.d_model, spec.inner, role="input")
        norm = spec.qk_norm
        self.q_norm, self.k_norm = (None if norm is None else norm.build(spec.key_features) for _ in range(2))
        self.position = spec.position.build(spec.key_features, spec.heads)
        self.output_norm = spec.output_norm.build(spec.inner)
        if spec.norm_groups > 1:
            self.output_norm = NormPerHead(spec.output_norm, spec.norm_groups, spec.inner // spec.norm_groups)
        # Multi-token prediction modules come after the last layer and use its slope.
        layer = min(site.layer, site.n_layers - 1) + spec.first_layer
        self.depth = 1 - layer / (max(1, site.n_layers - 1) + 1e-5) + 1e-5

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = (self.activation(part) for part in self.project(x, step, cache))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.position.rotate_queries(q, step), self.position.rotate_keys(k, step)
        k = on_text(k.transpose(1, 2), step).transpose(1, 2)
        heads = torch.arange(1, self.heads + 1, dtype=torch.float64, device=v.device)
        decay = (-self.depth * torch.exp2(-8 * heads / self.heads))[None, :, None]  # −s: (1, H, 1)
        decay = decay.to(torch.promote_types(v.dtype, torch.float32))
        mixed = scan(q, k, v, decay, self.chunk, cache).to(v.dtype)
        return self.o(self._normed(mixed.transpose(1, 2).flatten(2)) * self.gate(x).sigmoid())

    def _normed(self, heads: Tensor) -> Tensor:
        """Output norm, over all features or per group: (B, T, H·p) → (B, T, H·p)."""
        out: Tensor = self.output_norm(split(heads, self.groups) if self.groups > 1 else heads)
        return out.transpose(1, 2).flatten(2) if self.groups > 1 else out
