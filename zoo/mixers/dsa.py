"""DeepSeek's sparse attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attend import note, offer_taps
from zoo.attending.plain import scores_of
from zoo.attending.visible import Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError
from zoo.kernels.precision import in_float32
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers._block_heads import KEY_NORM, Indexer, chosen, imitation_loss
from zoo.mixers.mla import MLA, MLALayer
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Fact, HeadFeatures, MaxInTests
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost, mean_keys


class DeepSeekSparseAttention(MLA):
    """Latent attention to the `top_k` keys that an indexer scores highest: softmax over {s : I_ts in the top k}.
    DeepSeek-AI 2025 (DeepSeek-V3.2), arXiv:2512.02556.

    I_ts = Σ_j w_tj ReLU(q_tj · k_s) (`zoo.mixers._block_heads`). The selection has no gradient. In training, the
    indexer imitates the attention weights on the selected keys, averaged over heads: the objective gets `index_loss` ·
    KL, from which nothing else learns. That is the paper's sparse stage; its first stage, in which the indexer learns
    beside dense attention, is left out. Cached per token: the tensors of `mla`, and the indexer's key.

    The indexer's queries and keys use the layer's position scheme with a layout of their own, `index_layout`: halves
    in DeepSeek-V3.2, interleaved in GLM-5.
    """

    examples: ClassVar[Examples] = (
        {"kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "v_dim": 5, "index_heads": 3, "index_dim": 8, "top_k": 6},
    )
    adds_loss: ClassVar[bool] = True

    kind: Literal["dsa"] = "dsa"  # type: ignore[assignment]
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    index_heads: Annotated[PositiveInt, MaxInTests(4)] = 4
    """H_I: number of the indexer's query heads."""
    index_dim: HeadFeatures = 32
    """d_I: features of an indexer's head; the first `rope_dim` of them carry positions."""
    index_layout: Literal["half", "interleaved"] = "half"
    """Pairing of the features that rotary positions rotate together in the indexer's heads."""
    top_k: Annotated[PositiveInt, MaxInTests(8)] = 64
    """Maximum number of keys that a query attends to."""
    index_loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 1.0
    """Weight of the indexer's loss; with 0 it does not learn."""

    def resolve(self, d_model: int) -> Self:
        if self.index_dim < self.rope_dim:
            raise SpecError("index_dim", f"must be at least rope_dim ({self.rope_dim}), not {self.index_dim}")
        if self.sinks and self.index_loss:
            raise SpecError("sinks", "sinks with a trained indexer are not published: set index_loss: 0")
        if self.qk_norm is not None:
            raise SpecError("qk_norm", "qk_norm with an indexer is not published: leave it out")
        return super().resolve(d_model)

    def build(self, site: LayerSite) -> MixerLayer:
        return DeepSeekSparseAttentionLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        """Cost including the indexer, which scores all keys."""
        return super().cost(d_model, context) + self._index_cost(d_model, context)

    def _index_cost(self, d_model: int, context: int) -> PartCost:
        keys = Keys(mean_keys(context, self.window), context, context)
        matrix = self._index_matrix(d_model)
        parameters = matrix + KEY_NORM.parameters(self.index_dim)
        return attention_cost(parameters, matrix, self._flops_per_scored_key(), keys)

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """The indexer's inputs are detached, which saves one product per matrix in the backward pass. With `index_loss`
        0 the indexer has no backward pass."""
        projecting = 2.0 * self._index_matrix(d_model)
        if self.index_loss:
            return PartCost.of(0, -projecting / 3)
        return replace(self._index_cost(d_model, context), parameters=0).for_share(-2 / 3)

    def decode_flops(self, d_model: int, context: int) -> float:
        seen = min(context, self.window or context)
        scoring = 2.0 * self._index_matrix(d_model) + seen * self._flops_per_scored_key()
        return super().decode_flops(d_model, context) + scoring

    def _index_matrix(self, d_model: int) -> int:
        read = (self.q_rank or d_model) * self.index_heads * self.index_dim
        return read + d_model * (self.index_dim + self.index_heads)

    def _flops_per_scored_key(self) -> float:
        return 2.0 * self.index_heads * (self.index_dim + 1)

    def _keys(self, context: int) -> Keys:
        return Keys(mean_keys(context, min(self.top_k, self.window or self.top_k)), context, context)

    def decoded_keys(self, context: int) -> int:
        seen = super().decoded_keys(context)
        return seen if self.position.adds_to_scores else min(seen, self.top_k)

    def cache_elements(self, capacity: int) -> int:
        return super().cache_elements(capacity) + self.index_dim * min(capacity, self.window or capacity)

    def cached(self) -> tuple[tuple[int, int], ...]:
        return (*super().cached(), (1, self.index_dim))

    def check_ahead(self) -> None:
        """Raise SpecError: causal only, as published. Costs do not cover a selection among all tokens of a text."""
        Mixer.check_ahead(self)


class DeepSeekSparseAttentionLayer(MLALayer):
    """x: (B, T, D) → (B, T, D)."""

    spec: DeepSeekSparseAttention

    def __init__(self, spec: DeepSeekSparseAttention, d_model: int) -> None:
        super().__init__(spec, d_model)
        layout = {"layout": spec.index_layout} if hasattr(spec.position, "layout") else {}
        position, sizes = spec.position.model_copy(update=layout), (spec.index_heads, spec.index_dim)
        self.indexer = Indexer(spec.q_rank or d_model, d_model, *sizes, position, spec.rope_dim)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        read, places = self._read(x), step.index
        kept = [*self._latents(x, step), self.indexer.keys(x, step)]
        tokens = kept_by(self, cache, TokenCache)
        if tokens is not None:
            kept, places = tokens.extend(kept, step.index)
        visible = Visible.to(step, places, self.spec.window)
        scores = self.indexer.scores(read, x, kept[2], step)
        q_nope, q_rope = self._queries(read, step)
        heads = self.attend_to_chosen(q_nope, q_rope, kept, visible, scores, step).transpose(1, 2).flatten(2)
        return self.o(heads if self.gate is None else self.gate(heads, x))

    def attend_to_chosen(
        self,
        q_nope: Tensor,
        q_rope: Tensor,
        kept: Sequence[Tensor],
        visible: Visible,
        scores: Tensor,
        step: ForwardPass,
    ) -> Tensor:
        """Attention to the keys with the largest `scores` (B, T, S): (B, H, T, v)."""
        mask = visible.mask()
        seen = mask if mask.dim() == 2 else mask[:, 0]
        picked = chosen(scores, seen, visible.keys, self.spec.top_k)
        latent, k_rope, _ = kept
        if visible.everything and not self.spec.position.adds_to_scores:
            # A single query of unpadded text: gather the selected keys, so that the others are not read.
            latent, k_rope = (x.take_along_dim(picked.transpose(1, 2)[:, None], dim=2) for x in (latent, k_rope))
            visible = Visible(step.index, step.index.expand(picked.shape[2]))
            return self._mixed(q_nope, q_rope, latent, k_rope, visible, self._scoring(step, None))
        taken = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, picked, True) & seen
        bias = torch.zeros_like(scores).masked_fill(~taken, float("-inf"))[:, None].to(q_rope.dtype)
        own = self.position.bias(step, visible.keys)
        scoring = self._scoring(step, bias if own is None else own + bias)
        if not (self.training and self.spec.index_loss):
            return self._mixed(q_nope, q_rope, latent, k_rope, visible, scoring)
        # In training with explicit weights, which the indexer's loss imitates.
        (k, v), q = self._keys_and_values(latent, k_rope), torch.cat((q_nope, q_rope), dim=-1)
        offer_taps(q, k, visible, scoring)
        note("plain", True)
        weights = in_float32(lambda q, k: scores_of(q, k, visible, scoring).softmax(dim=-1), q, k)
        step.losses.append(self.spec.index_loss * imitation_loss(scores, weights, taken))
        return in_float32(lambda weights, v: F.dropout(weights, scoring.dropout) @ v, weights, v).to(v.dtype)

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        *latents, index = kept
        return [*super().moved(latents, by), self.indexer.moved(index, by)]
