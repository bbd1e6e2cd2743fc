"""mLSTM."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

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
from zoo.mixers._linear import HalfKeys, LinearHeadsLayer
from zoo.mixers._scan import ScanCost, scan
from zoo.norms import Norm
from zoo.norms.layernorm import LayerNorm
from zoo.settings.axis import Choice, Examples
from zoo.site import ForwardPass, LayerSite

ADMITS = -10.0
"""Initial bias of input gates."""
KEEPS = 3.0, 6.0
"""Range of the initial biases of forget gates, evenly spaced over the heads."""


class MLSTM(HalfKeys):
    """S_t = f_t S_{t−1} + i_t k_t v_tᵀ, z_t = f_t z_{t−1} + i_t k_t, h_t = S_tᵀ q_t / max(|z_t·q_t|, 1), out =
    W_o (σ(W_g x) ⊙ norm(h)). Beck et al. 2024 (xLSTM), arXiv:2405.04517 eq. 19–27, in the form of xLSTM 7B,
    arXiv:2503.13427.

    q, k: n = D/2H features of a head, q/√n; v: D/H; i = e^c(W_i x + b) and f = σ(c(W_f x + b)), one number per head,
    c(z) = cap · tanh(z / cap). The norm is over each head, with its own gains. i is at most e^cap, which fits float32,
    so that S and z need no division by a running maximum, which would cancel in h. W_i and W_f start at zero.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "head_dim": 5, "v_dim": 7},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["mlstm"] = "mlstm"
    supports: ClassVar[Operations] = OF_MODULES
    gate_cap: Annotated[float, Field(gt=0, le=30)] = 15.0
    """Soft cap on the gates' logits."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = LayerNorm(bias=False, eps=1e-6)
    """Norm of each head's output h, before the gate σ(W_g x)."""

    def build(self, site: LayerSite) -> MixerLayer:
        return MLSTMLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.heads * (self.value_features + 2)

    def vectors(self, d_model: int) -> int:
        return self.heads * (2 + self.head_norm.parameters(self.value_features))

    def scanning(self) -> ScanCost:
        """Cost of the scan, with z as the sums of one more value feature, which is 1."""
        return ScanCost(self.heads, self.key_features, self.heads, self.value_features + 1, self.chunk)


class MLSTMLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: MLSTM, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk, self.scale, self.cap = spec.chunk, spec.key_features**-0.5, spec.gate_cap
        self.admit, self.forget = (Linear(d_model, spec.heads, bias=True, role="input") for _ in range(2))
        self.admit.initial_std = self.forget.initial_std = {"weight": 0.0}
        self.admit.initial = {"bias": ADMITS}
        self.forget.initial = {"bias": torch.linspace(*KEEPS, spec.heads)}
        self.gate = Linear(d_model, spec.heads * spec.value_features, role="input")
        self.head_norm = NormPerHead(spec.head_norm, spec.heads, spec.value_features)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)  # (B, H, T, n), (B, H, T, n), (B, H, T, p)
        admitted = self._capped(self.admit(x)).exp()  # i: (B, H, T)
        decay = F.logsigmoid(self._capped(self.forget(x)))  # log f: (B, H, T)
        k = on_text((k * admitted[..., None]).transpose(1, 2), step).transpose(1, 2)
        sums = scan(q * self.scale, k, torch.cat((v, torch.ones_like(v[..., :1])), dim=-1), decay, self.chunk, cache)
        heads = sums[..., :-1] / sums[..., -1:].abs().clamp(min=1)
        gated = self.head_norm(heads.to(v.dtype)) * split(self.gate(x), self.heads).sigmoid()
        return self.o(gated.transpose(1, 2).flatten(2))

    def _capped(self, raw: Tensor) -> Tensor:
        """(B, T, H) → cap · tanh(raw / cap): (B, H, T), float32 or wider."""
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32)).transpose(1, 2)
        return self.cap * torch.tanh(raw / self.cap)
