"""Linear attention."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.mixers import MixerLayer
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer
from zoo.mixers._scan import ScanCost, scan
from zoo.settings.axis import Examples
from zoo.site import ForwardPass, LayerSite


class LinearAttention(LinearHeads):
    """out_i = Σ_{j≤i} φ(q_i)·φ(k_j) v_j / (Σ_{j≤i} φ(q_i)·φ(k_j) + ε), φ(x) = elu(x) + 1. Katharopoulos et al. 2020,
    arXiv:2006.16236.

    Decoding caches S = Σ φ(k_j) v_jᵀ and z = Σ φ(k_j) of each head: d (d + 1) numbers for any context.
    """

    examples: ClassVar[Examples] = ({"chunk": 8}, {"chunk": 4, "head_dim": 5, "conv": 4})
    kind: Literal["linear_attention"] = "linear_attention"
    supports: ClassVar[Operations] = OF_MODULES
    eps: PositiveFloat = 1e-6
    """ε: added to the denominator, against division by zero."""

    def build(self, site: LayerSite) -> MixerLayer:
        return LinearAttentionLayer(self, site.d_model)

    def scanning(self) -> ScanCost:
        """Cost of the scan, with the sum of weights as one more value feature."""
        return ScanCost(self.heads, self.key_features, self.heads, self.value_features + 1, self.chunk)


class LinearAttentionLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: LinearAttention, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk, self.eps = spec.chunk, spec.eps

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)
        k = on_text((F.elu(k) + 1).transpose(1, 2), step).transpose(1, 2)
        ones = torch.ones_like(v[..., :1])
        sums = scan(F.elu(q) + 1, k, torch.cat((v, ones), dim=-1), None, self.chunk, cache)
        heads = sums[..., :-1] / (sums[..., -1:] + self.eps)
        return self.o(heads.to(v.dtype).transpose(1, 2).flatten(2))
