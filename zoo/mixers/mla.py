"""Multi-head latent attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, Self, cast

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.attend import attend
from zoo.attending.blocks import scores_computed
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError, under
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import SELF_ALONE, Mixer, MixerLayer
from zoo.mixers._heads import Gate, OutputGate, gate_features, split
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm, RMSNormLayer
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, Examples, is_off, number
from zoo.settings.field_tags import Dropout, Fact, Features, HeadFeatures, Heads, MaxInTests, Supports
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost, mean_keys

# Norms of queries and keys for attention whose keys are projected from a cached latent.


class KeyNorms(NamedTuple):
    """own: position-free keys before their norm, (B, H, S, n), None if unknown; inverse_rms: 1/rms, (B, H, S, 1)."""

    own: Tensor | None
    inverse_rms: Tensor


class LatentNorms(nn.Module):
    """RMSNorms of queries and keys, separate for features without positions and features with them. Han et al. 2026,
    arXiv:2606.16310.

    q_n ← rms(q_n) ⊙ g, k_n ← W_k c / rms(W_k c) ⊙ g', and the same for q_r and k_r before positions. A head's q_nᵀ k_n
    is (W_kᵀ (g' ⊙ q_n))ᵀ c / rms(W_k c): the gains move to the queries, as W_k does, and one number remains of a key's
    norm.
    """

    def __init__(self, norm: Norm, nope_dim: int, rope_dim: int) -> None:
        super().__init__()
        self.eps = cast(RMSNorm, norm).eps
        self.q_nope, self.k_nope = (cast(RMSNormLayer, norm.build(nope_dim)) for _ in range(2))
        self.q_rope, self.k_rope = (norm.build(rope_dim) for _ in range(2))

    def inverse_rms(self, keys: Tensor) -> Tensor:
        """1/rms of keys: (B, H, T, n) → (B, H, T, 1)."""
        found = in_float32(lambda k: torch.rsqrt(k.square().mean(-1, keepdim=True) + self.eps), keys)
        return found.to(keys.dtype)

    def with_gain(self, x: Tensor) -> Tensor:
        """Apply the keys' gain g' to normalised keys or, if these do not have it, to queries: (…, n)."""
        gain = self.k_nope.gain
        return x if gain is None else x * (gain + self.k_nope.gain_offset)


class MLA(Mixer):
    """Attention whose keys and values are projected from a small cached latent. DeepSeek-V2, arXiv:2405.04434.

    c = norm(W_dkv x): (r), k_r = rope(W_kr x): (ρ), one for all heads; cached together, r + ρ numbers per token
    head h: q = [q_n ; rope(q_r)]: (n + ρ), k = [W_k^h c ; k_r], v = W_v^h c: (v)
    out = W_o concat_h softmax(q kᵀ · scale + mask) v
    q is projected from x, or from norm(W_dq x) if `q_rank` is set.

    r = kv_rank, ρ = rope_dim, n = nope_dim. In decoding, W_k and W_v are not applied to cached latents but absorbed
    into queries and outputs (§2.1.2): scores are (W_kᵀ q_n) cᵀ + q_r k_rᵀ, with one key of r + ρ features for all
    heads. Numbers in comments refer to the paper's equations.
    """

    examples: ClassVar[Examples] = (
        {"kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "v_dim": 5},
        {"kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "q_rank": 9, "gate": "head"},
        {"kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "sinks": True},
    )
    paired_examples: ClassVar[int | None] = 2
    kind: Literal["mla"] = "mla"
    supports: ClassVar[Operations] = BY_TOKEN
    heads: Heads = 4
    """H: number of heads of queries, keys and values."""
    q_rank: Features | None = None
    """Features of the queries' latent; null for queries projected from the stream (DeepSeek-V2-Lite)."""
    kv_rank: Features = 32
    """r: features of the cached latent c from which keys and values are projected."""
    nope_dim: HeadFeatures = 16
    """n: features of a query and a key head without positions."""
    rope_dim: HeadFeatures = 8
    """ρ: features of a query head, and of the key that all heads share, with positions."""
    v_dim: HeadFeatures | None = None
    """Features of a value head; null for nope_dim."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE(layout="interleaved")
    """Position encoding of the ρ = rope_dim features of queries and of the shared key."""
    latent_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of the latent c, and of the queries' latent if `q_rank` is set."""
    window: Annotated[PositiveInt | None, MaxInTests(8)] = None
    """W: a token sees itself and the W − 1 before it (sliding-window attention); null for all before it."""
    bias: bool = False
    """Whether the down-projections from the stream to a latent, and W_o, have biases."""
    gate: Gate | None = Field(default=None, exclude_if=is_off)
    """Gate on the heads' output: σ(W x) or softplus(W x), per feature or per head (Qiu et al. 2025, arXiv:2505.06708;
    Ling 3.0)."""
    sinks: Annotated[bool, Supports(*BY_TOKEN)] = Field(default=False, exclude_if=is_off)
    """Whether a learned logit per head takes a share of the softmax and adds no value (gpt-oss, arXiv:2508.10925; on
    latent attention in Hunyuan V4)."""
    qk_norm: Annotated[Norm, Choice("zoo.norms")] | None = Field(default=None, exclude_if=is_off)
    """RMSNorm of queries and keys after W_q and W_k, before positions: one for the n features without positions and one
    for the ρ with them, each with gains that all heads share (Han et al. 2026, arXiv:2606.16310). 1/rms of a head's key
    is cached beside the latent, so that decoding can still absorb W_k into the queries."""
    dropout: Dropout = 0.0
    """Dropout on attention weights, in training."""
    scale: Annotated[PositiveFloat | None, Fact.SCORE_SCALE, Supports(*BY_TOKEN)] = None
    """Factor on q kᵀ; null for 1/√(nope_dim + rope_dim), times YaRN's mscale² where it has `scale_scores`."""

    def resolve(self, d_model: int) -> Self:
        with under("position"):
            self.position.check(self.rope_dim)
        if self.qk_norm is not None and self.qk_norm.kind != "rmsnorm":
            reason = f"must be rmsnorm, whose scale per key is a single cached number, not {self.qk_norm.kind}"
            raise SpecError("qk_norm", reason)
        v_dim = self.v_dim or self.nope_dim
        scale = self.scale or (self.nope_dim + self.rope_dim) ** -0.5 * self.position.score_factor
        return self.model_copy(update={"v_dim": v_dim, "scale": scale})

    def build(self, site: LayerSite) -> MixerLayer:
        return MLALayer(self, site.d_model)

    @property
    def value_features(self) -> int:
        """v: features of a value head of a resolved spec."""
        return number(self.v_dim)

    def cost(self, d_model: int, context: int) -> PartCost:
        q, v = self.heads * (self.nope_dim + self.rope_dim), self.heads * self.value_features
        matrix = (self.q_rank or 0) * d_model + (self.q_rank or d_model) * q
        matrix += d_model * gate_features(self.gate, self.heads, self.value_features)
        matrix += (
            d_model * (self.kv_rank + self.rope_dim) + self.kv_rank * (self.heads * self.nope_dim + v) + v * d_model
        )
        biases = (self.q_rank or 0) + self.kv_rank + self.rope_dim + d_model if self.bias else 0
        norms = sum(self.latent_norm.parameters(rank) for rank in (self.q_rank, self.kv_rank) if rank)
        norms += sum(2 * self.qk_norm.parameters(dim) for dim in (self.nope_dim, self.rope_dim) if self.qk_norm)
        return attention_cost(
            matrix + biases + norms + self.heads * self.sinks, matrix, self._flops_per_key(), self._keys(context)
        )

    def _keys(self, context: int) -> Keys:
        window = None if self.position.adds_to_scores or self.sinks else self.window
        return Keys(mean_keys(context, self.window), context, scores_computed(context, window) / context)

    def decoded_keys(self, context: int) -> int:
        """Number of keys of a single query after cached tokens."""
        return min(context, self.window or context)

    def decode_flops(self, d_model: int, context: int) -> float:
        """FLOPs of decoding one token, with W_k and W_v absorbed into the query and the output, or applied to the whole
        cache if that is less (as `absorbs` decides)."""
        keys = self.decoded_keys(context)
        per_head = self.kv_rank * (self.nope_dim + self.value_features)
        projected = MLA.cost(self, d_model, 1).flops - self._flops_per_key()
        projected += self.state_flops(d_model, 1)
        absorbed = projected + 2.0 * self.heads * keys * (2 * self.kv_rank + self.rope_dim)
        expanded = projected + 2.0 * self.heads * (keys - 1) * per_head + keys * self._flops_per_key()
        return absorbed if self.absorbs(1, keys) else expanded

    def state_flops(self, d_model: int, context: int) -> float:
        """FLOPs of the new tokens' keys, for the cached rms: scores use keys computed again from the cache."""
        return 0.0 if self.qk_norm is None else 2.0 * context * self.heads * self.kv_rank * self.nope_dim

    def absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form takes fewer multiplications. It is never used in a pass without cached tokens, so
        that the form, and the FLOP count, of a training step does not depend on the length."""
        if queries == keys:
            return False
        widths = self.nope_dim + self.value_features
        expanded = keys * self.kv_rank * widths + queries * keys * (widths + self.rope_dim)
        absorbed = queries * self.kv_rank * widths + queries * keys * (2 * self.kv_rank + self.rope_dim)
        return absorbed < expanded

    def _flops_per_key(self) -> float:
        """FLOPs of one score and one weighted value per head, in the expanded form."""
        return 2.0 * self.heads * (self.nope_dim + self.rope_dim + self.value_features)

    @property
    def caution(self) -> str | None:
        return SELF_ALONE if self.window == 1 and not self.sinks else None

    def cache_elements(self, capacity: int) -> int:
        return sum(heads * features for heads, features in MLA.cached(self)) * min(capacity, self.window or capacity)

    def cached(self) -> tuple[tuple[int, int], ...]:
        latents = (1, self.kv_rank), (1, self.rope_dim)
        return latents if self.qk_norm is None else (*latents, (self.heads, 1))

    def check_ahead(self) -> None:
        if self.window is not None:
            raise SpecError("window", "is causal: it cannot be used in an encoder or with visible: prefix")
        with under("position"):
            self.position.check_ahead()


class MLALayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: MLA, d_model: int) -> None:
        super().__init__()
        self.spec, self.heads = spec, spec.heads
        self.q_down, self.q_norm = None, None
        if spec.q_rank is not None:
            self.q_down = Linear(d_model, spec.q_rank, bias=spec.bias, role="input")
            self.q_norm = spec.latent_norm.build(spec.q_rank)
        self.q = Linear(spec.q_rank or d_model, self.heads * (spec.nope_dim + spec.rope_dim), role="input")
        self.kv_down = Linear(d_model, spec.kv_rank + spec.rope_dim, bias=spec.bias, role="input")
        self.kv_norm = spec.latent_norm.build(spec.kv_rank)
        self.k = Linear(spec.kv_rank, self.heads * spec.nope_dim, role="input")
        self.v = Linear(spec.kv_rank, self.heads * spec.value_features, role="input", values=True)
        self.o = Linear(self.heads * spec.value_features, d_model, bias=spec.bias, role="output")
        self.position = spec.position.build(spec.rope_dim, self.heads)
        heads = self.heads, spec.value_features
        self.gate = OutputGate(spec.gate, d_model, *heads, bias=False) if spec.gate else None
        self.sinks = nn.Parameter(torch.zeros(self.heads)) if spec.sinks else None
        self.qk_norm = LatentNorms(spec.qk_norm, spec.nope_dim, spec.rope_dim) if spec.qk_norm else None
        self.roles = {"sinks": "bias"}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q_nope, q_rope = self._queries(self._read(x), step)  # (B, H, T, n), (B, H, T, ρ)
        latent, k_rope = self._latents(x, step)  # (B, 1, T, r), (B, 1, T, ρ)
        places, tokens = step.index, kept_by(self, cache, TokenCache)
        kept, own = [latent, k_rope], None
        if self.qk_norm is not None:
            own = split(self.k(latent[:, 0]), self.heads)  # (B, H, T, n)
            kept.append(self.qk_norm.inverse_rms(own))
        if tokens is not None:  # (B, 1, S, r), (B, 1, S, ρ), (B, H, S, 1): all cached tensors
            kept, places = tokens.extend(kept, step.index)
            own = None  # a cache may round: compute keys from it, so that results do not depend on the chunks of a text
        latent, k_rope, *inverse_rms = kept
        keys = KeyNorms(own, *inverse_rms) if inverse_rms else None
        visible = Visible.to(step, places, self.spec.window)
        scoring = self._scoring(step, self.position.bias(step, places))
        heads = self._mixed(q_nope, q_rope, latent, k_rope, visible, scoring, keys)  # (B, H, T, v)
        joined = heads.transpose(1, 2).flatten(2)  # (B, T, H·v)
        return self.o(joined if self.gate is None else self.gate(joined, x))  # (19)

    def _read(self, x: Tensor) -> Tensor:
        """Input of the query projection: the stream, or its latent (B, T, q_rank) (12)."""
        return x if self.q_down is None or self.q_norm is None else self.q_norm(self.q_down(x))

    def _queries(self, read: Tensor, step: ForwardPass) -> tuple[Tensor, Tensor]:
        """(B, H, T, n) (13) and, with positions applied, (B, H, T, ρ) (14)."""
        q = split(self.q(read), self.heads)
        nope, rope = q.split((self.spec.nope_dim, self.spec.rope_dim), dim=-1)
        if self.qk_norm is not None:
            nope, rope = self.qk_norm.q_nope(nope), self.qk_norm.q_rope(rope)
        return nope, self.position.rotate_queries(rope, step)

    def _latents(self, x: Tensor, step: ForwardPass) -> tuple[Tensor, Tensor]:
        """Latent and key shared by all heads: (B, 1, T, r), normalised (9), and (B, 1, T, ρ), with positions (15)."""
        latent, rope = self.kv_down(x)[:, None].split((self.spec.kv_rank, self.spec.rope_dim), dim=-1)
        if self.qk_norm is not None:
            rope = self.qk_norm.k_rope(rope)
        return self.kv_norm(latent), self.position.rotate_keys(rope, step)

    def _scoring(self, step: ForwardPass, bias: Tensor | None) -> Scoring:
        dropout = self.spec.dropout if self.training else 0.0
        return Scoring(number(self.spec.scale), bias=bias, sinks=self.sinks, dropout=dropout, tap=step.tap)

    def _mixed(
        self,
        q_nope: Tensor,
        q_rope: Tensor,
        latent: Tensor,
        k_rope: Tensor,
        visible: Visible,
        scoring: Scoring,
        keys: KeyNorms | None = None,
    ) -> Tensor:
        """Attention: (B, H, T, v), in the expanded or the absorbed form (`MLA.absorbs`). keys: for `qk_norm`."""
        if not self.spec.absorbs(q_rope.shape[2], k_rope.shape[2]):
            k, v = self._keys_and_values(latent, k_rope, keys)
            return attend(torch.cat((q_nope, q_rope), dim=-1), k, v, visible, scoring)  # (16), (18)
        # q_nᵀ (W_k c) = (W_kᵀ q_n)ᵀ c and Σ a (W_v c) = W_v Σ a c: the latent is the key and the value of all heads.
        w_k, w_v = (project.weight.unflatten(0, (self.heads, -1)) for project in (self.k, self.v))  # (H, n | v, r)
        scaled = latent
        if self.qk_norm is not None and keys is not None:  # heads' keys then differ by a factor
            q_nope, scaled = self.qk_norm.with_gain(q_nope), latent * keys.inverse_rms
            k_rope, latent = (part.expand(-1, self.heads, -1, -1) for part in (k_rope, latent))
        q = torch.cat((q_nope @ w_k, q_rope), dim=-1)  # (B, H, T, r + ρ)
        mixed = attend(q, torch.cat((scaled, k_rope), dim=-1), latent, visible, scoring)  # (B, H, T, r)
        out: Tensor = mixed @ w_v.transpose(-1, -2)
        return out

    def _keys_and_values(self, latent: Tensor, k_rope: Tensor, keys: KeyNorms | None = None) -> tuple[Tensor, Tensor]:
        """Expanded keys (B, H, S, n + ρ) and values (B, H, S, v)."""
        v = split(self.v(latent[:, 0]), self.heads)  # (11)
        k_nope = split(self.k(latent[:, 0]), self.heads) if keys is None or keys.own is None else keys.own  # (10)
        if self.qk_norm is not None and keys is not None:
            k_nope = self.qk_norm.with_gain(k_nope * keys.inverse_rms)
        return torch.cat((k_nope, k_rope.expand(-1, self.heads, -1, -1)), dim=-1), v  # (17)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        slots = min(capacity, self.spec.window or capacity)
        rolling = self.spec.window is not None and self.spec.window <= capacity
        return TokenCache.empty(batch, slots, self.spec.cached(), self.o.weight, dtype, rolling)

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        latent, k_rope, *inverse_rms = kept
        return [latent, self.position.moved(k_rope, by), *inverse_rms]
