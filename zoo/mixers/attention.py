"""Causal softmax attention, from multi-head to multi-query, full or windowed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.attend import Scoring, Visible, attend, scores_computed
from zoo.axis import Choice, is_off, number
from zoo.cache import LayerCache, TokenCache, kept_by
from zoo.cache_states import StateCache, TokenStateCache
from zoo.conv import STATE as CONV
from zoo.conv import ShortConv, conv_cost
from zoo.errors import SpecError, UnsupportedError
from zoo.facts import AtMost, Dropout, Fact, HeadFeatures, Heads, Tried
from zoo.init import Linear
from zoo.mixers import SELF_ALONE, Mixer, MixerLayer
from zoo.mixers._gate import Gate, OutputGate, gate_features
from zoo.mixers._per_head import NormPerHead
from zoo.mixers._projections import GATE, Biases
from zoo.mixers._temperature import Temperature
from zoo.mixers._values import ValueResidual, with_others
from zoo.norms import Norm
from zoo.positions import Position, check_ahead
from zoo.positions.rope import RoPE
from zoo.site import Keys, PartCost, Site, Step, attention_cost, mean_keys
from zoo.sparsities import Sparsity


class MultiHead(Mixer):
    """What all mixers are made of that attend with the softmax over heads of queries, keys and values.

    `kv_heads` = H is multi-head, 1 is multi-query (Shazeer 2019, arXiv:1911.02150), between them grouped-query
    attention (Ainslie et al. 2023, arXiv:2305.13245). `window` = W lets a token see itself and the W − 1 before it
    (Mistral 7B, arXiv:2310.06825).
    """

    heads: Heads = 4
    kv_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS, Tried(2, 1)] = None
    """Heads of keys and values; null for as many as `heads`."""
    head_dim: Annotated[HeadFeatures | None, Tried(12)] = None
    """Features per head; null for d_model / heads."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE()
    window: Annotated[PositiveInt | None, AtMost(8), Tried(5)] = None
    sparsity: Annotated[Sparsity, Choice("zoo.sparsities")] | None = Field(default=None, exclude_if=is_off)
    """Which keys are seen where that is neither all nor a window; it has its own window."""
    qk_norm: Annotated[Norm, Choice("zoo.norms")] | None = None
    """Norm of queries and keys before positions (Henry et al. 2020, arXiv:2010.04245; arXiv:2302.05442)."""
    qk_norm_over: Literal["head", "heads", "full"] = "head"
    """Each head by itself, with one gain for all heads (`head`, Qwen 3) or one each (`heads`, Cohere and StableLM), or
    the full width before the head split (`full`, OLMo 2)."""
    qk_norm_after_position: bool = Field(default=False, exclude_if=is_off)
    """Whether that norm comes after positions (Hunyuan, arXiv:2411.02265; Llama 4)."""
    temperature: Annotated[Temperature | None, Tried({"floor": 4})] = Field(default=None, exclude_if=is_off)
    """Queries grow with their place; null for not at all."""
    bias: Annotated[Biases, Tried(True, ("q", "v"))] = ()
    """true for q, k, v and o, false, or those of the projections q, k, v, o and gate that have a bias."""
    scale: Annotated[PositiveFloat | None, Fact.SCORE_SCALE] = None
    """Factor on QKᵀ; null for 1/√d, times YaRN's mscale² where it has `scale_scores`."""
    softcap: Annotated[PositiveFloat | None, Tried(3.0)] = None
    """c · tanh(score / c) (Gemma 2, arXiv:2408.00118)."""
    sinks: bool = False
    """A learned logit per head that takes a share of the softmax and gives nothing (gpt-oss, arXiv:2508.10925)."""
    gate: Gate | None = None
    """The heads' output times σ(W x), per feature or per head (Qiu et al. 2025, arXiv:2505.06708)."""
    conv: Annotated[PositiveInt | None, Tried(3)] = None
    """Tokens that a causal convolution of each feature of queries, keys and values sees, right after their projections
    (Primer, So et al. 2021, arXiv:2109.08668); null for none."""
    clip_qkv: PositiveFloat | None = None
    """Queries, keys and values are clamped to ± this after projection (MPT; OLMo, arXiv:2402.00838)."""
    value_residual: bool = False
    """Values are mixed with the first layer's (ResFormer, Zhou et al. 2024, arXiv:2410.17897)."""
    dropout: Dropout = 0.0
    """Of attention weights, while training."""

    def resolve(self, d_model: int) -> Self:
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            raise SpecError("kv_heads", f"{kv_heads} kv heads do not divide {self.heads} heads")
        if self.sparsity is not None and self.window is not None:
            raise SpecError("window", f"{self.sparsity.kind} says which keys are seen: leave the mixer's window out")
        head_dim = self.head_dim or self._default_head_dim(d_model)
        try:
            self.position.check(head_dim)
        except SpecError as error:
            raise error.under("position") from None
        if GATE in self.bias and self.gate is None:
            raise SpecError("bias", "there is no gate to have a bias")
        if self.qk_norm_after_position and self.qk_norm_over == "full":
            raise SpecError("qk_norm_over", "positions are applied to heads, and full is the width before the split")
        scale = self.scale or head_dim**-0.5 * self.position.score_factor
        return self.model_copy(update={"kv_heads": kv_heads, "head_dim": head_dim, "scale": scale})

    def _default_head_dim(self, d_model: int) -> int:
        if d_model % self.heads:
            reason = f"{self.heads} heads do not divide d_model {d_model}; set head_dim to choose it freely"
            raise SpecError("heads", reason)
        return d_model // self.heads

    def sizes(self) -> tuple[int, int, int]:
        """H, K, d of a resolved spec: what is projected to q: (H, d), k and v: (K, d), and what o reads: (H, d)."""
        return self.heads, number(self.kv_heads), number(self.head_dim)

    def cost(self, d_model: int, context: int) -> PartCost:
        heads, kv_heads, head_dim = self.sizes()
        gates = gate_features(self.gate, *self.outputs())
        matrix = 2 * d_model * (heads + kv_heads) * head_dim + d_model * gates
        q, kv = heads * head_dim, kv_heads * head_dim
        widths = {"q": q, "k": kv, "v": kv, "o": d_model, GATE: gates}
        parameters = matrix + sum(widths[name] for name in self.bias) + self._norm_parameters()
        parameters += heads * self.sinks + 2 * self.value_residual
        attending = attention_cost(parameters, matrix, self._flops_per_key(), self._keys(context))
        return attending + conv_cost(self.channels, self.conv)

    def _keys(self, context: int) -> Keys:
        if self.sparsity is not None:
            computed = self.sparsity.computed(context) if self._plain_scores else context**2
            return Keys(self.sparsity.pairs(context) / context, context, computed / context)
        computed = scores_computed(context, self.window if self._plain_scores else None)
        return Keys(mean_keys(context, self.window), context, computed / context)

    @property
    def _plain_scores(self) -> bool:
        """Whether scores are QKᵀ · scale and nothing else, as `zoo.attend.Scoring.simple` has it."""
        return self.softcap is None and not self.sinks and not self.position.adds_to_scores

    @property
    def caution(self) -> str | None:
        # A sink takes its share of the one key's weight, which then depends on the score.
        return SELF_ALONE if self.window == 1 and not self.sinks else None

    def slots(self, capacity: int) -> int:
        """How many tokens are cached, of texts of up to `capacity`."""
        reach = self.window if self.sparsity is None else self.sparsity.reach
        return min(capacity, reach or capacity)

    @property
    def channels(self) -> int:
        """Queries, keys and values together, of a resolved spec."""
        heads, kv_heads, head_dim = self.sizes()
        return (heads + 2 * kv_heads) * head_dim

    def _flops_per_key(self) -> float:
        """One score and one weighted value for each head: a multiplication and an addition per feature."""
        heads, _, head_dim = self.sizes()
        return 4.0 * heads * head_dim

    def outputs(self) -> tuple[int, int]:
        """How many heads' outputs there are to gate, and of how many features."""
        heads, _, head_dim = self.sizes()
        return heads, head_dim

    @property
    def value_heads(self) -> tuple[int, int]:
        _, kv_heads, head_dim = self.sizes()
        return kv_heads, head_dim

    @property
    def shared_values(self) -> tuple[int, int] | None:
        return self.value_heads if self.value_residual else None

    def _norm_parameters(self) -> int:
        if self.qk_norm is None:
            return 0
        heads, kv_heads, head_dim = self.sizes()
        if self.qk_norm_over != "full":
            norms = 2 if self.qk_norm_over == "head" else heads + kv_heads
            return norms * self.qk_norm.parameters(head_dim)
        return self.qk_norm.parameters(heads * head_dim) + self.qk_norm.parameters(kv_heads * head_dim)

    def cache_elements(self, capacity: int) -> int:
        _, kv_heads, head_dim = self.sizes()
        tokens = 2 * kv_heads * head_dim * self.slots(capacity)
        return tokens + self.channels * ((self.conv or 1) - 1)

    def cached(self) -> tuple[tuple[int, int], ...]:
        _, kv_heads, head_dim = self.sizes()
        return (kv_heads, head_dim), (kv_heads, head_dim)

    def positions(self) -> tuple[tuple[Position, int], ...]:
        return ((self.position, self.heads),)

    def check_ahead(self) -> None:
        for name in ("window", "conv", "sparsity"):
            if getattr(self, name) is not None:
                raise SpecError(name, "reaches back only: it cannot see later tokens")
        check_ahead(self.position)


class Attention(MultiHead):
    """out = softmax(QKᵀ/√d + mask) V, concatenated over heads, times W_o. Vaswani et al. 2017, arXiv:1706.03762."""

    kind: Literal["attention"] = "attention"

    def build(self, site: Site) -> MixerLayer:
        return AttentionLayer(self, site.d_model)


class AttentionLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: MultiHead, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.heads, self.kv_heads, self.head_dim = spec.sizes()
        q_features, kv_features = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q = Linear(d_model, q_features, bias="q" in spec.bias, role="input")
        self.k = Linear(d_model, kv_features, bias="k" in spec.bias, role="input")
        self.v = Linear(d_model, kv_features, bias="v" in spec.bias, role="input", values=True)
        self.o = Linear(q_features, d_model, bias="o" in spec.bias, role="output")
        self.conv = ShortConv(spec.channels, spec.conv) if spec.conv else None
        self._full_norm = spec.qk_norm_over == "full"
        self.q_norm, self.k_norm = self._norm(self.heads), self._norm(self.kv_heads)
        self.position = spec.position.build(self.head_dim, spec.heads)
        self.gate = OutputGate(spec.gate, d_model, *spec.outputs(), GATE in spec.bias) if spec.gate else None
        self.values = ValueResidual() if spec.value_residual else None
        self.sinks = nn.Parameter(torch.zeros(self.heads)) if spec.sinks else None
        self.roles = {"sinks": "bias"}

    def _norm(self, heads: int) -> nn.Module:
        """The norm of so many heads of queries or keys."""
        norm = self.spec.qk_norm
        if norm is None:
            return nn.Identity()
        if self.spec.qk_norm_over == "heads":
            return NormPerHead(norm, heads, self.head_dim)
        return norm.build(heads * self.head_dim if self._full_norm else self.head_dim)

    def forward(self, x: Tensor, step: Step, cache: LayerCache | None = None) -> Tensor:
        tokens, k_places = kept_by(self, cache, TokenCache), step.index
        q, k, v = self._project(x, step, cache)
        if tokens is not None:
            (k, v), k_places = tokens.extend((k, v), step.index)
        visible = Visible.to(step, k_places, self.spec.window, self.spec.sparsity)
        if visible.pattern is not None and visible.everything:
            seen = visible.places_seen()
            k, v, k_places = k[:, :, seen], v[:, :, seen], k_places[seen]
            visible = Visible.to(step, k_places)
        heads = self._attend(q, k, v, visible, self._scoring(step, k_places)).transpose(1, 2).flatten(2)
        if self.gate is not None:
            heads = self.gate(heads, x)
        out: Tensor = self.o(heads)
        return out

    def _project(self, x: Tensor, step: Step, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """q: (B, H, T, d), k and v: (B, K, T, d), normalised and with positions applied."""
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.conv is not None:
            widths = [part.shape[-1] for part in (q, k, v)]
            q, k, v = self.conv(torch.cat((q, k, v), dim=-1), step, cache).split(widths, dim=-1)
        if self.spec.clip_qkv is not None:
            q, k, v = (part.clamp(-self.spec.clip_qkv, self.spec.clip_qkv) for part in (q, k, v))
        if self._full_norm:
            q, k = self._split(self.q_norm(q)), self._split(self.k_norm(k))
        else:
            q, k = self._split(q), self._split(k)
        q, k = self._placed(q, k, step)
        return q, k, with_others(self._split(v), self.values, step)

    def _placed(self, q: Tensor, k: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """With positions applied, and the norm of heads before or after that."""
        late, by_head = self.spec.qk_norm_after_position, not self._full_norm
        if by_head and not late:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.position.rotate_queries(q, step), self.position.rotate_keys(k, step)
        if by_head and late:
            q, k = self.q_norm(q), self.k_norm(k)
        return q if self.spec.temperature is None else self.spec.temperature.scale(q, step), k

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """The heads' outputs: (B, heads, T, features), as `MultiHead.outputs` declares them."""
        return attend(q, k, v, visible, scoring)

    def _scoring(self, step: Step, k_places: Tensor) -> Scoring:
        dropout = self.spec.dropout if self.training else 0.0
        bias = self.position.bias(step, k_places)
        return Scoring(number(self.spec.scale), self.spec.softcap, bias, self.sinks, dropout, step.tap)

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, heads·d) → (B, heads, T, d)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return heads

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        slots = self.spec.slots(capacity)
        rolling = self.spec.slots(capacity + 1) == slots
        tokens = TokenCache.empty(batch, slots, self.spec.cached(), self.k.weight, dtype, rolling)
        if self.spec.conv is None:
            return tokens
        shapes = {CONV: (self.spec.conv - 1, self.spec.channels)}
        return TokenStateCache(tokens, StateCache.zeros(batch, shapes, self.k.weight, dtype))

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        if self.spec.sparsity is not None:
            raise UnsupportedError(
                "mixer.sparsity", "it is a pattern of places in the text, and what is kept would move"
            )
        if self.spec.qk_norm is not None and self.spec.qk_norm_after_position:
            raise UnsupportedError("mixer.qk_norm_after_position", "what is kept was normalised after it was turned")
        keys, values = kept
        return [self.position.moved(keys, by), values]
