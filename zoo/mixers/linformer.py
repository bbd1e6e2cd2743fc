"""Linformer: attention to mixtures of keys, whose number does not grow with the text."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError, UnsupportedError
from zoo.mixers import MixerLayer
from zoo.mixers._multi_head import MultiHead
from zoo.mixers.attention import AttentionLayer
from zoo.settings.axis import Examples
from zoo.settings.edits import Edits
from zoo.site import Keys, LayerSite, PartCost


class Linformer(MultiHead):
    """head = softmax(Q (E K)ᵀ/√d) (F V), E and F: (r, n) learned. Wang et al. 2020, arXiv:2006.04768.

    r = `rank` mixtures of keys replace the keys, so that work grows linearly with the length, not quadratically. Token
    j of a text uses column j of E and F, which have n = `max_length` columns; longer texts raise an error. A mixture
    holds keys of the whole text, none of which can be hidden, so that it suits encoders only. Positions rotate queries
    and keys before these are mixed. E and F start at N(0, 1/n), as projections with n inputs do here.

    `share` is the paper's: `none`, each head of keys and values has its own E and F; `headwise`, one E and one F for
    all heads of a layer; `key_value`, one matrix for both. The paper's fourth, one matrix for all layers, is left out.
    """

    examples: ClassVar[Examples] = (
        {"rank": 5, "max_length": 23, "share": "none"},
        {"rank": 3, "max_length": 23, "share": "key_value"},
    )
    requires: ClassVar[Edits] = {"visible": "all"}
    kind: Literal["linformer"] = "linformer"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    rank: PositiveInt = 64
    """r: number of mixtures; the paper's k, 128 or 256 for texts of 512 tokens."""
    max_length: PositiveInt = 512
    """n: longest text, in tokens; the width of E and F."""
    share: Literal["none", "headwise", "key_value"] = "headwise"
    """Sharing of E and F: `none`, a pair for each head of keys and values; `headwise`, one pair for all heads of a
    layer; `key_value`, one matrix for both."""

    def resolve(self, d_model: int) -> Self:
        spec = super().resolve(d_model)
        if self.reuse_kv:
            raise SpecError("reuse_kv", "cannot be combined with linformer, which mixes its own keys and values")
        if self.position.adds_to_scores:
            reason = f"{self.position.kind} cannot add to linformer's scores of mixed keys, which have no position"
            raise SpecError("position", reason)
        return spec

    def check_causal(self) -> None:
        raise SpecError("", "linformer needs visible: all, since its mixtures of keys include later tokens")

    @property
    def longest(self) -> int | None:
        return self.max_length

    def build(self, site: LayerSite) -> MixerLayer:
        return LinformerLayer(self, site.d_model)

    @property
    def matrices(self) -> int:
        """Number of matrices E; F has as many, or none with `key_value`."""
        return self.sizes()[1] if self.share == "none" else 1

    def cost(self, d_model: int, context: int) -> PartCost:
        _, kv_heads, head_dim = self.sizes()
        weights = (1 + (self.share != "key_value")) * self.matrices * self.rank * self.max_length
        mixing = 4.0 * self.rank * kv_heads * head_dim
        return super().cost(d_model, context) + PartCost.of(weights, mixing)

    def _keys(self, context: int) -> Keys:
        return Keys(self.rank, self.rank, self.rank)

    def cache_elements(self, capacity: int) -> int:
        return 0

    def cached(self) -> tuple[tuple[int, int], ...]:
        return ()


class LinformerLayer(AttentionLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Linformer, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.e = Mixtures(spec)
        self.f = Mixtures(spec) if spec.share != "key_value" else None

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """q: (B, H, T, d), k and v: (B, K, T, d) → (B, H, T, d)."""
        keys, values = self.e(k, visible), (self.e if self.f is None else self.f)(v, visible)
        mixtures = torch.arange(keys.shape[2], device=q.device)
        return attend(q, keys, values, Visible(visible.queries, mixtures, mask_kind="all"), replace(scoring, bias=None))

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        raise UnsupportedError("mixer", "linformer reads a text in one pass: there is nothing to cache")


class Mixtures(nn.Module):
    """x: (B, K, T, d) → (B, K, r, d): mixture i of head h is Σ_j W_h[i, j] x_j over the text, without padding. Raises
    ValueError for texts of more than `max_length` tokens."""

    roles: ClassVar = {"weight": "input"}

    def __init__(self, spec: Linformer) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.matrices, spec.rank, spec.max_length))

    def forward(self, x: Tensor, visible: Visible) -> Tensor:
        return torch.einsum("hbri,bhid->bhrd", self._columns(visible), x)

    def _columns(self, visible: Visible) -> Tensor:
        """Columns of each row's tokens, by position in the row's text: (K or 1, B or 1, r, T), zero on padding."""
        length, longest = visible.keys.shape[0], self.weight.shape[-1]
        padding = 0 if visible.left_pad is None else int(visible.left_pad.min())
        if length - padding > longest:
            raise ValueError(f"linformer reads at most {longest} tokens (max_length), not {length - padding}")
        if not visible.padded:
            return self.weight[:, None, :, :length]
        places = visible.keys[None] if visible.left_pad is None else visible.keys - visible.left_pad[:, None]
        text = places >= 0
        if visible.ends is not None:
            text = text & (visible.keys < visible.ends[:, None])
        columns = self.weight[:, :, places.clamp(min=0)].transpose(1, 2)
        return columns.masked_fill(~text[:, None], 0.0)
