"""Lightning attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from zoo.axis import Choice, Examples
from zoo.cache import LayerCache
from zoo.conv import on_text
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer
from zoo.mixers._scan import scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.site import Site, Step


class LightningAttention(LinearHeads):
    """S_t = e^(−s) S_{t−1} + k_t v_tᵀ, out = W_o (norm(S_tᵀ q_t) ⊙ σ(W_g x)), q, k, v = silu(W x), and a fixed slope
    s = 2^(−8h/H) (1 − l/(L − 1)) for head h from 1, in layer l of L from 0. MiniMax 2025 (MiniMax-01), arXiv:2501.08313
    §2.2, after Qin et al. 2024, arXiv:2401.04658.

    The norm is over all heads at once. 10⁻⁵ is added to L − 1 and to the second factor, so that the last layer forgets
    a little too, as in the released model.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "head_dim": 5},)
    kind: Literal["lightning"] = "lightning"
    activation: PlainActivation = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Of queries, keys and values."""
    output_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()

    def build(self, site: Site) -> MixerLayer:
        return LightningAttentionLayer(self, site)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.heads * self.value_features

    def vectors(self, d_model: int) -> int:
        return self.output_norm.parameters(self.heads * self.value_features)


class LightningAttentionLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: LightningAttention, site: Site) -> None:
        super().__init__(spec, site.d_model)
        self.chunk, self.activation = spec.chunk, UNGATED[spec.activation]
        inner = spec.heads * spec.value_features
        self.gate = Linear(site.d_model, inner, role="input")
        self.output_norm = spec.output_norm.build(inner)
        # Modules that look further ahead come after the last layer, and are like it.
        layer = min(site.layer, site.n_layers - 1)
        self.depth = 1 - layer / (site.n_layers - 1 + 1e-5) + 1e-5

    def forward(self, x: Tensor, step: Step, cache: LayerCache | None = None) -> Tensor:
        q, k, v = (self.activation(part) for part in self._project(x, step, cache))
        k = on_text(k.transpose(1, 2), step).transpose(1, 2)
        mixed = scan(q, k, v, self._decay(v), self.chunk, cache).to(v.dtype)
        gated = self.output_norm(mixed.transpose(1, 2).flatten(2)) * self.gate(x).sigmoid()
        out: Tensor = self.o(gated)
        return out

    def _decay(self, v: Tensor) -> Tensor:
        """−s: (1, H, 1)."""
        kind = torch.promote_types(v.dtype, torch.float32)
        heads = torch.arange(1, self.heads + 1, dtype=torch.float64, device=v.device)
        return (-self.depth * torch.exp2(-8 * heads / self.heads))[None, :, None].to(kind)
