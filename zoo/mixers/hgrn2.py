"""HGRN2."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.mixers import MixerLayer
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer
from zoo.mixers._scan import ScanCost, scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples
from zoo.site import ForwardPass, LayerSite


class HGRN2(LinearHeads):
    """S_t = diag(f_t) S_{t−1} + (1 − f_t) v_tᵀ, out = W_o norm(S_tᵀ q_t), q = silu(W_q x), v = W_v x, f = γ + (1 − γ)
    σ(W_f x): each key feature writes the share that it forgets. Qin et al. 2024, arXiv:2404.07904.

    n = D/H features of a head. The norm is over all heads at once. γ is a setting, 0 as in the paper's first layer. In
    the other layers the paper learns γ per feature, as the sum of a softmax over the layers below, so that upper layers
    forget less. A pattern of `blocks` can let γ grow from layer to layer.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "head_dim": 5, "lower_bound": 0.4, "conv": 3},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["hgrn2"] = "hgrn2"
    supports: ClassVar[Operations] = OF_MODULES
    lower_bound: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """γ: lower bound of the forget gates f."""
    output_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of the concatenated heads' outputs."""

    def build(self, site: LayerSite) -> MixerLayer:
        return HGRN2Layer(self, site.d_model)

    def vectors(self, d_model: int) -> int:
        return self.output_norm.parameters(self.heads * self.value_features)

    def scanning(self) -> ScanCost:
        return ScanCost(self.heads, self.key_features, self.heads, self.value_features, self.chunk, channels=True)


class HGRN2Layer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: HGRN2, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk, self.bound = spec.chunk, spec.lower_bound
        self.output_norm = spec.output_norm.build(spec.heads * spec.value_features)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, raw, v = self.project(x, step, cache)  # W_f x in the place of keys: (B, H, T, n)
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        decay = F.logsigmoid(raw)
        if self.bound:  # log f, without subtracting nearly equal numbers
            decay = torch.logaddexp(decay.new_tensor(math.log(self.bound)), decay + math.log1p(-self.bound))
        k = on_text(((1 - self.bound) * (-raw).sigmoid()).transpose(1, 2), step).transpose(1, 2)  # 1 − f
        mixed = scan(F.silu(q), k, v, decay, self.chunk, cache).to(v.dtype)
        return self.o(self.output_norm(mixed.transpose(1, 2).flatten(2)))
