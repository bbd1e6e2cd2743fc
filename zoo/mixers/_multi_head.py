"""Common code of mixers with multi-head softmax attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.attending.blocks import scores_computed
from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, EVERY_OPERATION, Operations
from zoo.conv import conv_cost
from zoo.errors import SpecError, under
from zoo.mixers import SELF_ALONE, Mixer
from zoo.mixers._heads import GATE, Biases, Gate, check_kv_heads, check_reuse, default_head_dim, gate_features
from zoo.norms import Norm
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, Spec, is_off, number
from zoo.settings.field_tags import Dropout, Fact, HeadFeatures, Heads, MaxInTests, Supports, ValuesInTests
from zoo.site import ForwardPass, Keys, PartCost, attention_cost, mean_keys
from zoo.sparsities import Sparsity

# Attention temperature: queries grow with their position, so that attention stays sharp in long texts.


class Temperature(Spec):
    """q ← q · (1 + c log(1 + ⌊(p + offset) / f⌋)) for the query at position p, counted from 0.

    Used in Llama 4 (Meta 2025, https://github.com/meta-llama/llama-models) on layers without positions, with offset 1,
    and in Ministral 3 on all layers, with offset 0.
    """

    supports: ClassVar[Operations] = EVERY_OPERATION

    coefficient: PositiveFloat = 0.1
    """c: growth of queries per unit of the logarithm."""
    floor: PositiveInt = 8192
    """f: shorter texts, in tokens, are unaffected."""
    offset: NonNegativeInt = 1
    """Number added to a query's position p before the division by f."""

    def scale(self, q: Tensor, step: ForwardPass) -> Tensor:
        """q: (B, H, T, d) → the same shape."""
        places = step.positions.clamp(min=0).float()
        factor = 1 + self.coefficient * torch.log1p(((places + self.offset) / self.floor).floor())
        return q * factor.view(-1, 1, q.shape[2], 1).to(q.dtype)


class MultiHead(Mixer):
    """Base of mixers with multi-head softmax attention.

    `kv_heads` = H is multi-head, 1 multi-query (Shazeer 2019, arXiv:1911.02150), and a number in between grouped-query
    attention (Ainslie et al. 2023, arXiv:2305.13245). `window` = W lets a token see itself and the W − 1 before it
    (Mistral 7B, arXiv:2310.06825).
    """

    headings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "heads": ("heads", "kv_heads", "head_dim", "v_dim"),
        "positions": ("position", "temperature"),
        "visible keys": ("window", "sparsity"),
        "scores": ("scale", "scale_in", "softcap", "sinks", "forget", "dropout"),
        "norms": ("qk_norm", "qk_norm_over", "qk_norm_after_position", "v_norm"),
        "projections": ("bias", "conv", "clip_qkv", "value_scale"),
        "output": ("gate", "exclusive"),
        "shared": ("reuse_kv", "value_residual", "keys_as_values"),
    }
    """Settings of all mixers of this base."""

    heads: Heads = 4
    """H: number of query heads; a head has d_model / heads features unless `head_dim` is set."""
    kv_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS, ValuesInTests(2, 1)] = None
    """Heads of keys and values; null for as many as `heads`."""
    head_dim: Annotated[HeadFeatures | None, ValuesInTests(12)] = None
    """Features per head; null for d_model / heads."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE()
    """Position encoding: rotates queries and keys, or adds to scores; `nope` for none."""
    window: Annotated[PositiveInt | None, MaxInTests(8), ValuesInTests(5), Supports(*EVERY_OPERATION)] = None
    """W: a token sees itself and the W − 1 before it (sliding-window attention); null for all before it."""
    sparsity: Annotated[Sparsity, Choice("zoo.sparsities")] | None = Field(default=None, exclude_if=is_off)
    """Sparse pattern of visible keys, in place of all keys or a window; patterns have their own window."""
    qk_norm: Annotated[Norm, Choice("zoo.norms")] | None = None
    """Norm of queries and keys before positions (Henry et al. 2020, arXiv:2010.04245; arXiv:2302.05442)."""
    qk_norm_over: Literal["head", "heads", "full"] = "head"
    """Extent of `qk_norm`: each head, with one gain for all heads (`head`, Qwen 3) or one per head (`heads`, Cohere and
    StableLM), or the full width before the head split (`full`, OLMo 2)."""
    qk_norm_after_position: Annotated[bool, Supports(*EVERY_OPERATION)] = Field(default=False, exclude_if=is_off)
    """Whether `qk_norm` comes after positions (Hunyuan, arXiv:2411.02265; Llama 4)."""
    v_norm: Annotated[Annotated[Norm, Choice("zoo.norms")] | None, ValuesInTests({"kind": "rmsnorm"})] = Field(
        default=None, exclude_if=is_off
    )
    """Norm of each value head (Gemma 3n)."""
    temperature: Annotated[Temperature | None, ValuesInTests({"floor": 4})] = Field(default=None, exclude_if=is_off)
    """Growth of queries with their position; null for none."""
    bias: Annotated[Biases, ValuesInTests(True, ("q", "v")), Supports(*EVERY_OPERATION)] = ()
    """Projections with a bias: true for q, k, v and o, false for none, or a list of q, k, v, o and gate."""
    scale: Annotated[PositiveFloat | None, Fact.SCORE_SCALE, Supports(*EVERY_OPERATION)] = None
    """Factor on QKᵀ; null for 1/√d, times YaRN's mscale² where it has `scale_scores`."""
    softcap: Annotated[PositiveFloat | None, ValuesInTests(3.0), Supports(*EVERY_OPERATION)] = None
    """c: scores become c · tanh(score / c) (Gemma 2, arXiv:2408.00118); null for no cap."""
    sinks: Annotated[bool, Supports(*ALL_BUT_TRANSFER, *BY_TOKEN)] = False
    """Whether a learned logit per head takes a share of the softmax and adds no value (gpt-oss, arXiv:2508.10925)."""
    gate: Annotated[Gate | None, Supports(*EVERY_OPERATION)] = None
    """Gate on the heads' output: σ(W x) or softplus(W x), per feature or per head (Qiu et al. 2025, arXiv:2505.06708).
    """
    conv: Annotated[PositiveInt | None, ValuesInTests(3), Supports(*ALL_BUT_TRANSFER)] = None
    """Tokens in the window of a causal depthwise convolution of queries, keys and values, right after their projections
    (Primer, So et al. 2021, arXiv:2109.08668); null for none."""
    clip_qkv: Annotated[PositiveFloat | None, Supports(*EVERY_OPERATION)] = None
    """c: queries, keys and values are clamped to ±c after projection (MPT; OLMo, arXiv:2402.00838); null for none."""
    value_residual: Annotated[bool, Supports(*ALL_BUT_TRANSFER)] = False
    """Whether values are mixed with the first layer's (ResFormer, Zhou et al. 2024, arXiv:2410.17897)."""
    reuse_kv: Annotated[bool, Field(exclude_if=is_off), ValuesInTests(), Supports(*EVERY_OPERATION)] = False
    """Whether keys and values are those of a layer below (see `zoo.mixers._heads`)."""
    dropout: Dropout = 0.0
    """Dropout on attention weights, in training."""

    def keeps_width(self, setting: str) -> bool:
        """True for norms over a head: wider models have more heads of the same size."""
        return setting == "v_norm" or (setting == "qk_norm" and self.qk_norm_over != "full")

    def resolve(self, d_model: int) -> Self:
        kv_heads = self.kv_heads or self.heads
        check_kv_heads(self.heads, kv_heads)
        if self.sparsity is not None and self.window is not None:
            reason = f"sparsity {self.sparsity.kind} determines which keys are visible: leave window out"
            raise SpecError("window", reason)
        head_dim = self.head_dim or self._default_head_dim(d_model)
        with under("position"):
            self.position.check(head_dim)
        if GATE in self.bias and self.gate is None:
            raise SpecError("bias", "cannot include gate: the mixer has no gate")
        if self.qk_norm_after_position and self.qk_norm_over == "full":
            reason = "full cannot be combined with qk_norm_after_position: positions are applied to single heads"
            raise SpecError("qk_norm_over", reason)
        for name in ("sparsity", "temperature", "qk_norm_after_position") if self.position.reads_queries else ():
            if getattr(self, name):
                reason = f"cannot be combined with {self.position.kind}, which reads the projected queries"
                raise SpecError(name, reason)
        if self.reuse_kv:
            check_reuse(self.conv, self.value_residual, self.bias)
        numbers = {"kv_heads": kv_heads, "head_dim": head_dim}
        scale = self.scale or head_dim**-0.5 * self.position.score_factor
        return self.model_copy(update={**numbers, "scale": scale, "v_norm": None if self.reuse_kv else self.v_norm})

    def _default_head_dim(self, d_model: int) -> int:
        return default_head_dim(self.heads, d_model)

    def sizes(self) -> tuple[int, int, int]:
        """(H, K, d) of a resolved spec: q is projected to (H, d), k to (K, d)."""
        return self.heads, number(self.kv_heads), number(self.head_dim)

    @property
    def value_features(self) -> int:
        """e: features of a value head of a resolved spec: v is projected to (K, e)."""
        return self.sizes()[2]

    def cost(self, d_model: int, context: int) -> PartCost:
        heads, kv_heads, head_dim = self.sizes()
        gates = gate_features(self.gate, *self.outputs())
        q, k, v = heads * head_dim, kv_heads * head_dim, kv_heads * self.value_features
        own = 0 if self.reuse_kv else k + v
        matrix = d_model * (q + own + math.prod(self.outputs()) + gates)
        widths = {"q": q, "k": k, "v": v, "o": d_model, GATE: gates}
        parameters = matrix + sum(widths[name] for name in self.bias) + self._norm_parameters()
        parameters += heads * self.sinks + 2 * self.value_residual
        parameters += self.v_norm.parameters(self.value_features) if self.v_norm is not None else 0
        attending = attention_cost(parameters, matrix, self._flops_per_key(), self._keys(context))
        reach = min(context, self.window or context)  # a bias on scores is not computed beyond the window
        placing = self.position.layer_cost(head_dim, heads, Keys(mean_keys(context, self.window), reach, reach))
        return attending + placing + conv_cost(self.channels, self.conv)

    def pass_flops(self, context: int) -> float:
        heads, _, head_dim = self.sizes()
        return self.position.pass_flops(head_dim, heads, min(context, self.window or context))

    def _keys(self, context: int) -> Keys:
        if self.sparsity is not None:
            computed = self.sparsity.computed(context) if self._plain_scores else context**2
            return Keys(self.sparsity.pairs(context) / context, context, computed / context)
        computed = scores_computed(context, self.window if self._plain_scores else None)
        return Keys(mean_keys(context, self.window), context, computed / context)

    @property
    def _plain_scores(self) -> bool:
        """Whether scores are QKᵀ · scale and nothing else, as in `zoo.attending.visible.Needs.plain_scores`."""
        return self.softcap is None and not self.sinks and not self.position.adds_to_scores

    @property
    def caution(self) -> str | None:
        # A sink takes its share of the one key's weight, which then depends on the score.
        return SELF_ALONE if self.window == 1 and not self.sinks else None

    def slots(self, capacity: int) -> int:
        """Number of tokens cached for texts of up to `capacity` tokens."""
        reach = self.window if self.sparsity is None else self.sparsity.reach
        return min(capacity, reach or capacity)

    @property
    def channels(self) -> int:
        """Features of queries, keys and values together, of a resolved spec."""
        heads, kv_heads, head_dim = self.sizes()
        return (heads + kv_heads) * head_dim + kv_heads * self.value_features

    def _flops_per_key(self) -> float:
        """FLOPs of one score and one weighted value per head: a multiplication and an addition per feature."""
        heads, _, head_dim = self.sizes()
        return 2.0 * heads * (head_dim + self.value_features)

    def outputs(self) -> tuple[int, int]:
        """(heads, features) of the outputs that W_o reads."""
        return self.sizes()[0], self.value_features

    @property
    def value_heads(self) -> tuple[int, int] | None:
        return None if self.reuse_kv else (self.sizes()[1], self.value_features)

    @property
    def kv(self) -> str:
        _, kv_heads, head_dim = self.sizes()
        sizes = f"{kv_heads} × {head_dim} and {self.value_features}"
        return f"{self.kind} {sizes}, {self.position!r}, {self.window}, {self.sparsity!r}"

    @property
    def borrows(self) -> bool:
        return self.reuse_kv

    @property
    def shared_values(self) -> tuple[int, int] | None:
        return self.value_heads if self.value_residual else None

    def _norm_parameters(self) -> int:
        if self.qk_norm is None:
            return 0
        heads, kv_heads, head_dim = self.sizes()
        normed = (heads,) if self.reuse_kv else (heads, kv_heads)
        if self.qk_norm_over != "full":
            norms = len(normed) if self.qk_norm_over == "head" else sum(normed)
            return norms * self.qk_norm.parameters(head_dim)
        return sum(self.qk_norm.parameters(each * head_dim) for each in normed)

    def cache_elements(self, capacity: int) -> int:
        kept = sum(heads * features for heads, features in self.cached())
        return kept * self.slots(capacity) + self.channels * ((self.conv or 1) - 1)

    def cached(self) -> tuple[tuple[int, int], ...]:
        _, kv_heads, head_dim = self.sizes()
        return () if self.reuse_kv else ((kv_heads, head_dim), (kv_heads, self.value_features))

    def borrowed_elements(self, capacity: int) -> int:
        _, kv_heads, head_dim = self.sizes()
        return kv_heads * (head_dim + self.value_features) * self.slots(capacity) if self.reuse_kv else 0

    def check_ahead(self) -> None:
        for name in ("window", "conv", "sparsity"):
            if getattr(self, name) is not None:
                raise SpecError(name, "is causal: it cannot be used in an encoder or with visible: prefix")
        with under("position"):
            self.position.check_ahead()
