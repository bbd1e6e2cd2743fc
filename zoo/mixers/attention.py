"""Causal softmax attention, from multi-head to multi-query, full or windowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.caching.states import StateCache, TokenStateCache
from zoo.compatibility.traits import EVERY_OPERATION, OF_MODULES, Operations
from zoo.conv import CONV, ShortConv
from zoo.errors import SpecError, UnsupportedError
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._heads import (
    GATE,
    ForgetGate,
    NormPerHead,
    OutputGate,
    ValueResidual,
    borrowed,
    decay_bias,
    lend,
    split,
    split_by,
)
from zoo.mixers._multi_head import MultiHead
from zoo.positions import Queries
from zoo.projections import joint_product, project_all
from zoo.settings.axis import is_off, number
from zoo.settings.field_tags import HeadFeatures, Supports, ValuesInTests
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost

Rotate = Callable[[Tensor, ForwardPass], Tensor]


class Attention(MultiHead):
    """out = softmax(QKᵀ/√d + mask) V, concatenated over heads, times W_o. Vaswani et al. 2017, arXiv:1706.03762."""

    kind: Literal["attention"] = "attention"
    supports: ClassVar[Operations] = EVERY_OPERATION
    gives_queries: ClassVar[bool] = True
    v_dim: Annotated[HeadFeatures | None, ValuesInTests(10, paired=False)] = Field(default=None, exclude_if=is_off)
    """e: features of a value head (MiMo-V2, arXiv:2601.02780); null for those of a key head."""
    value_scale: Annotated[PositiveFloat, ValuesInTests(0.7, paired=False), Supports(*EVERY_OPERATION)] = Field(
        default=1.0, exclude_if=lambda scale: scale == 1
    )
    """Factor on values, applied before they are cached (MiMo-V2, arXiv:2601.02780)."""
    keys_as_values: Annotated[bool, ValuesInTests(True, paired=False), Supports(*OF_MODULES)] = Field(
        default=False, exclude_if=is_off
    )
    """Whether values are the projected keys, before norms and positions, without a matrix of their own (Gemma 4)."""
    forget: Annotated[bool, ValuesInTests(True, paired=False), Supports(*OF_MODULES)] = Field(
        default=False, exclude_if=is_off
    )
    """Whether each head has a forget gate f = σ(w_h x + b_h): the score of query i and key j gets Σ log f_t over the
    tokens t after j up to i (FoX, Lin et al. 2025, arXiv:2503.02130, there without positions, `position: nope`)."""
    exclusive: Annotated[bool, ValuesInTests(True, paired=False), Supports(*OF_MODULES)] = Field(
        default=False, exclude_if=is_off
    )
    """Whether a head's output y loses its component along the token's own value: y − (y·v̂) v̂, v̂ = v/‖v‖ (exclusive
    self-attention, Zhai 2026, arXiv:2603.09078)."""

    scale_in: Annotated[Literal["scores", "queries"], ValuesInTests("queries", paired=False), Supports(*OF_MODULES)] = (
        Field(default="scores", exclude_if=lambda place: place == "scores")
    )
    """Place of the scale: on the scores in every pass, or on the initial query weights, which training may change (T5,
    Raffel et al. 2020, arXiv:1910.10683) and `unit_weights` would undo."""

    def resolve(self, d_model: int) -> Self:
        if self.forget and self.reuse_kv:
            reason = "cannot be combined with reuse_kv: forget gates are cached with the layer's own keys"
            raise SpecError("forget", reason)
        if self.scale_in == "queries" and self.qk_norm is not None:
            reason = "must be scores with qk_norm, which undoes the initial scale of the query weights"
            raise SpecError("scale_in", reason)
        if self.exclusive and self.window == 1:
            raise SpecError("exclusive", "with a window of 1 the output is always 0")
        if self.value_scale != 1 and self.reuse_kv:
            raise SpecError("value_scale", "cannot be combined with reuse_kv: the values are a lower layer's")
        for name in ("reuse_kv", "conv", "v_dim") if self.keys_as_values else ():
            if getattr(self, name):
                raise SpecError("keys_as_values", f"cannot be combined with {name}: there is no value projection")
        if self.keys_as_values and "v" in self.bias:
            raise SpecError("bias", "with keys_as_values there is no value projection: use bias: [q, k, o]")
        return super().resolve(d_model)

    @property
    def value_features(self) -> int:
        return self.v_dim or super().value_features

    def build(self, site: LayerSite) -> MixerLayer:
        own = {"forget": self.forget, "exclusive": self.exclusive, "keys_as_values": self.keys_as_values}
        in_queries = self.scale_in == "queries"
        spec = self.model_copy(update={"scale": 1.0}) if in_queries else self
        layer = AttentionLayer(spec, site.d_model, value_scale=self.value_scale, **own)
        if in_queries:
            layer.q.initial_std = {"weight": number(self.scale) / math.sqrt(site.d_model)}
        return layer

    def cost(self, d_model: int, context: int) -> PartCost:
        gates = matmul_cost((d_model + 1) * self.heads, d_model * self.heads) if self.forget else PartCost(0)
        spared = d_model * self.sizes()[1] * self.value_features if self.keys_as_values else 0
        return super().cost(d_model, context) + gates + matmul_cost(-spared, -spared)

    @property
    def _plain_scores(self) -> bool:
        return super()._plain_scores and not self.forget

    def cached(self) -> tuple[tuple[int, int], ...]:
        return (*super().cached(), (self.heads, 1)) if self.forget else super().cached()

    def check_ahead(self) -> None:
        if self.forget:
            raise SpecError("forget", "forget gates need causal attention")
        super().check_ahead()


class Read(NamedTuple):
    """Inputs of attention. q: (B, H, T, d); k: (B, K, S, d), v: (B, K, S, e), cached ones included, at places (S,);
    forget: log f, (B, H, S, 1), None without forget gates."""

    q: Tensor
    k: Tensor
    v: Tensor
    places: Tensor
    forget: Tensor | None = None


class AttentionLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(
        self,
        spec: MultiHead,
        d_model: int,
        *,
        forget: bool = False,
        exclusive: bool = False,
        value_scale: float = 1.0,
        keys_as_values: bool = False,
    ) -> None:
        super().__init__()
        self.spec, self.kv, self.exclusive, self.value_scale = spec, spec.kv, exclusive, value_scale
        self.heads, self.kv_heads, self.head_dim = spec.sizes()
        self.q = Linear(d_model, self.heads * self.head_dim, bias="q" in spec.bias, role="input")
        if not spec.reuse_kv:
            k_features, v_features = self.kv_heads * self.head_dim, self.kv_heads * spec.value_features
            self.k = Linear(d_model, k_features, bias="k" in spec.bias, role="input")
            if not keys_as_values:
                self.v = Linear(d_model, v_features, bias="v" in spec.bias, role="input", values=True)
        self.keys_as_values = keys_as_values
        self.o = Linear(math.prod(spec.outputs()), d_model, bias="o" in spec.bias, role="output")
        self.conv = ShortConv(spec.channels, spec.conv) if spec.conv else None
        self._pattern = repr(spec.sparsity)  # torch.compile cannot trace it
        self._full_norm = spec.qk_norm_over == "full"
        self.q_norm = self._norm(self.heads)
        self.k_norm = nn.Identity() if spec.reuse_kv else self._norm(self.kv_heads)
        self.v_norm = nn.Identity() if spec.v_norm is None else spec.v_norm.build(spec.value_features)
        self.position = spec.position.build(self.head_dim, spec.heads)
        between = spec.conv or spec.clip_qkv or spec.reuse_kv or spec.qk_norm or keys_as_values
        self._places_alike = self.position.rotates_alike and not between
        self.gate = OutputGate(spec.gate, d_model, *spec.outputs(), GATE in spec.bias) if spec.gate else None
        self.values = ValueResidual() if spec.value_residual else None
        self.forget = ForgetGate(d_model, self.heads) if forget else None
        self.sinks = nn.Parameter(torch.zeros(self.heads)) if spec.sinks else None
        self.roles = {"sinks": "bias"}

    def _norm(self, heads: int) -> nn.Module:
        """Norm for `heads` heads of queries or keys; the identity without `qk_norm`."""
        norm = self.spec.qk_norm
        if norm is None:
            return nn.Identity()
        if self.spec.qk_norm_over == "heads":
            return NormPerHead(norm, heads, self.head_dim)
        return norm.build(heads * self.head_dim if self._full_norm else self.head_dim)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v, k_places, forget = self._read(x, step, cache)
        fading = None if forget is None else decay_bias(forget, k_places, step)  # (B, H, T, S)
        visible = Visible.to(step, k_places, self.spec.window, self.spec.sparsity, self._pattern)
        if visible.pattern is not None and visible.everything:
            # A single query of unpadded text under a pattern: gather the visible keys, so that the others are not read.
            seen = visible.mask()[0].nonzero()[:, 0]
            k, v, k_places = k[:, :, seen], v[:, :, seen], k_places[seen]
            fading = None if fading is None else fading[..., seen]
            visible = Visible.to(step, k_places)
        scoring = self._scoring(q, step, k_places)
        if fading is not None:
            scoring = replace(scoring, bias=fading if scoring.bias is None else scoring.bias + fading)
        heads = self._attend(q, k, v, visible, scoring)  # softmax(QKᵀ/√d + mask) V: (B, H, T, e)
        if self.exclusive:
            heads = without_own_value(heads, v, visible)
        joined = self._joined(heads, x).transpose(1, 2).flatten(2)  # (B, T, H·d)
        if self.gate is not None:
            joined = self.gate(joined, x)
        return self.o(joined)

    def _read(self, x: Tensor, step: ForwardPass, cache: LayerCache | None) -> Read:
        """x: (B, T, D) → queries, and keys and values, cached ones included; a lower layer's with `reuse_kv`."""
        if self.spec.reuse_kv:
            q, clip = self.q(x), self.spec.clip_qkv
            q = q if clip is None else q.clamp(-clip, clip)
            return Read(self._placed_queries(q, step), *borrowed(step, self.kv))
        # First, since `kept_by` rejects another model's cache before the convolution writes to it.
        tokens, k_places = kept_by(self, cache, TokenCache), step.index
        whole = joint_product(x, (self.q, self.k, self.v)) if self._places_alike else None
        if whole is not None:
            q, k, v = self._placed_together(whole, step)
        else:
            q, k, v = self._projected(x, step, cache)
            q = self._placed_queries(q, step)
            k = self._placed(k, self.k_norm, self.position.rotate_keys, step)
        v = split(v, self.kv_heads)
        if self.spec.v_norm is not None:
            v = self.v_norm(v)
        if self.value_scale != 1:
            v = v * self.value_scale
        if self.values is not None:
            v = self.values(v, step)  # mixed with the first layer's
        if step.revalue is not None:
            v = step.revalue(v)
        kept = [k, v] if self.forget is None else [k, v, self.forget(x, step)]
        if tokens is not None:
            kept, k_places = tokens.extend(kept, step.index)
        k, v, *forget = kept
        lend(step, self.kv, k, v, k_places)
        return Read(q, k, v, k_places, *forget)

    def _projected(self, x: Tensor, step: ForwardPass, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """x: (B, T, D) → q: (B, T, H·d), k: (B, T, K·d), v: (B, T, K·e), convolved and clamped."""
        if self.keys_as_values:
            q, k = project_all(x, self.q, self.k)
            v = k
        else:
            q, k, v = project_all(x, self.q, self.k, self.v)
        if self.conv is not None:
            widths = [part.shape[-1] for part in (q, k, v)]
            q, k, v = self.conv(torch.cat((q, k, v), dim=-1), step, cache).split(widths, dim=-1)
        clip = self.spec.clip_qkv
        return (q, k, v) if clip is None else (q.clamp(-clip, clip), k.clamp(-clip, clip), v.clamp(-clip, clip))

    def _placed_together(self, whole: Tensor, step: ForwardPass) -> tuple[Tensor, Tensor, Tensor]:
        """whole: (B, T, (H + K)·d + K·e) → q: (B, H, T, d) and k: (B, K, T, d) with positions applied, and
        v: (B, T, K·e). Queries and keys are placed as heads of one tensor, in half as many operations."""
        both, values = (self.heads + self.kv_heads) * self.head_dim, whole.shape[-1]
        qk, v = whole.split_with_sizes([both, values - both], dim=-1)
        placed = self.position.rotate_keys(split_by(qk, self.head_dim), step)
        q, k = placed.split_with_sizes([self.heads, self.kv_heads], dim=1)
        return q if self.spec.temperature is None else self.spec.temperature.scale(q, step), k, v

    def _placed_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        """(B, T, H·d) → (B, H, T, d), with norm, positions and temperature applied."""
        q = self._placed(q, self.q_norm, self.position.rotate_queries, step)
        return q if self.spec.temperature is None else self.spec.temperature.scale(q, step)

    def _placed(self, x: Tensor, norm: nn.Module, rotate: Rotate, step: ForwardPass) -> Tensor:
        """(B, T, heads·d) → (B, heads, T, d), with positions applied, and the norm before or after them."""
        if type(norm) is nn.Identity:  # whose call takes a microsecond
            return rotate(split_by(x, self.head_dim), step)
        if self._full_norm:
            return rotate(split_by(norm(x), self.head_dim), step)
        if self.spec.qk_norm_after_position:
            return norm(rotate(split_by(x, self.head_dim), step))  # type: ignore[no-any-return]
        return rotate(norm(split_by(x, self.head_dim)), step)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """Attention: (B, heads, T, features), which `_joined` turns into the heads' outputs."""
        return attend(q, k, v, visible, scoring)

    def _joined(self, heads: Tensor, x: Tensor) -> Tensor:
        """Heads' outputs: (B, heads, T, features), as declared by `MultiHead.outputs`. x: (B, T, D)."""
        return heads

    def _scoring(self, q: Tensor, step: ForwardPass, k_places: Tensor) -> Scoring:
        dropout = self.spec.dropout if self.training else 0.0
        scale = number(self.spec.scale)
        bias = self.position.bias_for(Queries(q, scale, self.spec.window), step, k_places)
        return Scoring(scale, self.spec.softcap, bias, self.sinks, dropout, step.listener)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        slots = self.spec.slots(capacity)
        rolling = self.spec.slots(capacity + 1) == slots
        if self.spec.reuse_kv:
            return StateCache({})
        tokens = TokenCache.empty(batch, slots, self.spec.cached(), self.k.weight, dtype, rolling)
        if self.spec.conv is None:
            return tokens
        shapes = {CONV: (self.spec.conv - 1, self.spec.channels)}
        return TokenStateCache(tokens, StateCache.zeros(batch, shapes, self.k.weight, dtype))

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        if self.spec.sparsity is not None:
            reason = "cached keys cannot be shifted: the sparsity pattern depends on absolute positions"
            raise UnsupportedError("mixer.sparsity", reason)
        if self.spec.qk_norm is not None and self.spec.qk_norm_after_position:
            reason = "cached keys cannot be shifted: they were normalised after rotation"
            raise UnsupportedError("mixer.qk_norm_after_position", reason)
        if self.forget is not None:
            raise UnsupportedError("mixer.forget", "dropped tokens' forget gates would be lost")
        keys, values = kept
        return [self.position.moved(keys, by), values]


def without_own_value(heads: Tensor, v: Tensor, visible: Visible) -> Tensor:
    """heads y: (B, H, T, e), v: (B, K, S, e), the queries' own values among them → y − (y·v̂) v̂.

    A token that sees only itself has y ∥ v: its output is set to exactly 0, since a norm would amplify rounding noise.
    """
    places, queries = visible.keys, visible.queries
    own = v if places is queries else v[:, :, (places == queries[:, None]).int().argmax(dim=1)]  # (B, K, T, e)
    wide = own.to(torch.promote_types(own.dtype, torch.float32))
    unit = F.normalize(wide, dim=-1).to(heads.dtype).repeat_interleave(heads.shape[1] // v.shape[1], dim=1)
    left = heads - (heads * unit).sum(dim=-1, keepdim=True) * unit
    return left.masked_fill(visible.alone()[..., None], 0.0)
