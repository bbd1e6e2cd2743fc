"""Retention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._heads import NormPerHead, split
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, check_turning
from zoo.mixers._scan import scan
from zoo.norms import Norm
from zoo.norms.layernorm import LayerNorm
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import HeadFeatures
from zoo.site import ForwardPass, LayerSite


class Retention(LinearHeads):
    """out = W_o (silu(W_g x) ⊙ norm_h(Σ_{j≤i} γ_h^(i−j) (q_i·k_j/√d) v_j)), γ_h = 1 − 2^(−5−h) for heads h from 0. Sun
    et al. 2023 (RetNet), arXiv:2307.08621.

    With `decays: spread` γ = 1 − exp(linspace(log 1/32, log 1/512, H)): the slowest head is the same for any number of
    heads. Many implementations do so, while eq. 8 of the paper and its authors' code have the powers.

    The norm is over each head, with a gain per feature (the paper's GroupNorm). The paper also divides scores and decay
    by their sums, which this norm cancels. Positions rotate queries and keys; there are no scores to which a bias could
    be added.
    """

    examples: ClassVar[Examples] = ({"chunk": 8}, {"chunk": 8, "decays": "spread"})
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["retention"] = "retention"
    supports: ClassVar[Operations] = OF_MODULES
    v_dim: HeadFeatures | None = None
    """Features of a value head; null for twice those of a key head."""
    decays: Literal["powers", "spread"] = Field(default="powers", exclude_if=lambda decays: decays == "powers")
    """1 − γ of the heads: 2⁻⁵, halved from head to head (`powers`), or spaced from 2⁻⁵ to 2⁻⁹ for any H (`spread`)."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE(layout="interleaved")
    """Position encoding that rotates queries and keys, `nope` for none; it cannot add to scores."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = LayerNorm()
    """Norm of each head's output, with its own gains, before the gate silu(W_g x)."""

    def resolve(self, d_model: int) -> Self:
        spec = super().resolve(d_model)
        check_turning(self.position, spec.key_features, self.kind)
        return spec.model_copy(update={"v_dim": self.v_dim or 2 * spec.key_features})

    @property
    def value_features(self) -> int:
        return number(self.v_dim)

    def build(self, site: LayerSite) -> MixerLayer:
        return RetentionLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.heads * self.value_features

    def vectors(self, d_model: int) -> int:
        return super().vectors(d_model) + self.heads * self.head_norm.parameters(self.value_features)


class RetentionLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Retention, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.decays = spec.decays
        self.chunk, self.scale = spec.chunk, spec.key_features**-0.5 * spec.position.score_factor
        self.gate = Linear(d_model, spec.heads * spec.value_features, role="input")
        self.head_norm = NormPerHead(spec.head_norm, spec.heads, spec.value_features)
        self.position = spec.position.build(spec.key_features, spec.heads)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)
        q, k = self.position.rotate_queries(q, step), self.position.rotate_keys(k, step)
        v = on_text(v.transpose(1, 2), step).transpose(1, 2)
        places = torch.arange(self.heads, dtype=torch.float64, device=v.device)
        if self.decays == "spread":
            places = 4 * places / max(self.heads - 1, 1)
        decay = torch.log1p(-torch.exp2(-5 - places))[None, :, None]  # log γ: (1, H, 1)
        decay = decay.to(torch.promote_types(v.dtype, torch.float32))
        mixed = scan(q * self.scale, k, v, decay, self.chunk, cache).to(v.dtype)
        heads = self.head_norm(mixed) * F.silu(split(self.gate(x), self.heads))
        return self.o(heads.transpose(1, 2).flatten(2))
