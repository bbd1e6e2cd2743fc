"""Gated slot attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.building_blocks import (
    Examples,
    ForwardPass,
    LayerCache,
    LayerSite,
    Linear,
    LinearHeads,
    LinearHeadsLayer,
    MixerLayer,
    ScanCost,
    ScanCosts,
    on_text,
    scan,
    split,
)

KEYS, VALUES = "slot_keys", "slot_values"
"""What the cache calls the states."""
SHARPNESS = 8.0


class GatedSlots(LinearHeads):
    """K_t = α ⊙ K_{t−1} + (1 − α) k_tᵀ, V_t likewise, both (m, n), out = W_o V_tᵀ softmax(K_t q_t), α = σ(W_α x)^(1/8).
    Zhang et al. 2024, arXiv:2409.07146."""

    examples: ClassVar[Examples] = ({"slots": 3, "chunk": 8},)
    kind: Literal["gsa"] = "gsa"
    slots: PositiveInt = 64
    """m: slots per head."""

    def build(self, site: LayerSite) -> MixerLayer:
        return GatedSlotsLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.heads * self.slots

    def scanning(self) -> ScanCosts:
        heads, slots = self.heads, self.slots
        keys = ScanCost(heads, self.key_features, heads * slots, 1, self.chunk)
        return keys + ScanCost(heads, slots, heads, self.value_features, self.chunk, channels=True)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        keys = {KEYS: (self.heads * self.slots, self.key_features, 1)}
        return {**keys, VALUES: (self.heads, self.slots, self.value_features)}


class GatedSlotsLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: GatedSlots, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk = spec.chunk
        self.forget = Linear(d_model, spec.heads * spec.slots, role="input")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)  # (B, H, T, n) each
        decay = F.logsigmoid(self.forget(x).float()) / SHARPNESS  # (B, T, H·m)
        added = on_text(1 - decay.exp(), step)  # padding writes nothing
        # K_t q_t: each slot is a head of its own with a single value feature, 1 − α, and shares q and k with its group.
        value, fading = added.transpose(1, 2)[..., None], decay.transpose(1, 2)  # (B, H·m, T, 1), (B, H·m, T)
        scores = scan(q.float(), k.float(), value, fading, self.chunk, cache, name=KEYS)
        weights = split(scores[..., 0].transpose(1, 2), self.heads).softmax(-1)  # (B, H, T, m)
        written, kept = split(added, self.heads), split(decay, self.heads)  # (B, H, T, m)
        mixed = scan(weights, written, v.float(), kept, self.chunk, cache, name=VALUES)
        out: Tensor = self.o(mixed.to(x.dtype).transpose(1, 2).flatten(2))
        return out
