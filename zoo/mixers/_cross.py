"""Cross-attention of a decoder to its encoder's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import EncoderCache
from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.mixers._heads import Biases, check_kv_heads, default_head_dim, split_by
from zoo.settings.axis import Spec, number
from zoo.settings.field_tags import Dropout, Fact, HeadFeatures, Heads
from zoo.site import ForwardPass, PartCost


class CrossAttention(Spec):
    """softmax(QKᵀ · scale) V: queries from the decoder's stream, keys and values from the encoder's output, without
    positions. Vaswani et al. 2017, arXiv:1706.03762 §3.2.3."""

    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    heads: Heads | None = None
    """Number of query heads; null for that of the block's mixer."""
    kv_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS] = None
    """Heads of keys and values; null for as many as `heads`."""
    head_dim: HeadFeatures | None = None
    """Features per head; null for those of the block's mixer, or else d_model / heads."""
    bias: Biases = ()
    """Projections with a bias: true for q, k, v and o, false for none, or a list."""
    scale: Annotated[PositiveFloat | None, Fact.SCORE_SCALE] = None
    """Factor on QKᵀ; null for 1/√d."""
    dropout: Dropout = 0.0
    """Dropout on attention weights, in training."""

    def resolve(self, d_model: int, mixer: Any) -> Self:
        """Copy with every default replaced by a number. mixer: the block's resolved mixer. Raises SpecError if it has
        no heads and none are set, or if the numbers of heads do not fit."""
        heads = self.heads or getattr(mixer, "heads", None)
        if heads is None:
            raise SpecError("heads", f"must be set: {mixer.kind} has no number of heads to copy")
        kv_heads = self.kv_heads or heads
        check_kv_heads(heads, kv_heads)
        head_dim = self.head_dim or getattr(mixer, "head_dim", None) or default_head_dim(heads, d_model)
        scale = self.scale or head_dim**-0.5
        return self.model_copy(update={"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": scale})

    def sizes(self) -> tuple[int, int, int]:
        """(H, K, d) of a resolved spec."""
        return number(self.heads), number(self.kv_heads), number(self.head_dim)

    def cost(self, d_model: int, context: int, memory: int) -> PartCost:
        """Cost per token of a pass over `context` tokens that see `memory` encoder tokens."""
        heads, _, head_dim = self.sizes()
        biases = heads * head_dim * ("q" in self.bias) + d_model * ("o" in self.bias)
        parameters = 2 * d_model * heads * head_dim + biases + self.memory_parameters(d_model)
        flops = self.decode_flops(d_model, memory) + self.memory_flops(d_model, memory) / context
        return PartCost.of(parameters, flops)

    def decode_flops(self, d_model: int, memory: int) -> float:
        """FLOPs of decoding one token, with keys and values of `memory` encoder tokens in the cache."""
        heads, _, head_dim = self.sizes()
        return 4.0 * heads * head_dim * (d_model + memory)

    def memory_flops(self, d_model: int, memory: int) -> float:
        """FLOPs of projecting keys and values of `memory` encoder tokens, once per text."""
        _, kv_heads, head_dim = self.sizes()
        return 4.0 * d_model * kv_heads * head_dim * memory

    def memory_parameters(self, d_model: int) -> int:
        """Parameters of the key and value projections, which no pass needs once keys and values are cached."""
        _, kv_heads, head_dim = self.sizes()
        return kv_heads * head_dim * (2 * d_model + ("k" in self.bias) + ("v" in self.bias))

    def cache_elements(self, memory: int) -> int:
        """Numbers cached per sequence, for up to `memory` encoder tokens."""
        _, kv_heads, head_dim = self.sizes()
        return 2 * kv_heads * head_dim * memory

    def build(self, d_model: int) -> CrossAttentionLayer:
        return CrossAttentionLayer(self, d_model)


@dataclass(frozen=True)
class OfMemory(Visible):
    """Every query sees all encoder tokens except padding. text: (B, S), false on padding; None without padding."""

    text: Tensor | None = None

    @property
    def padded(self) -> bool:
        return self.text is not None

    def _mask(self) -> Tensor:
        """(B, 1, 1, S), or (T, S) without padding."""
        if self.text is not None:
            return self.text[:, None, None]
        return torch.ones(len(self.queries), len(self.keys), dtype=torch.bool, device=self.keys.device)


class CrossAttentionLayer(nn.Module):
    """x: (B, T, D), with the encoder's output (B, S, D) in the step or its keys and values in the cache → (B, T, D)."""

    def __init__(self, spec: CrossAttention, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        heads, kv_heads, self.head_dim = spec.sizes()
        self.q = Linear(d_model, heads * self.head_dim, bias="q" in spec.bias, role="input")
        self.k = Linear(d_model, kv_heads * self.head_dim, bias="k" in spec.bias, role="input")
        self.v = Linear(d_model, kv_heads * self.head_dim, bias="v" in spec.bias, role="input", values=True)
        self.o = Linear(heads * self.head_dim, d_model, bias="o" in spec.bias, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        kept = kept_by(self, cache, EncoderCache)
        if kept is not None and kept.length:
            k, v = kept.read()
        else:
            if step.memory is None or step.memory.hidden is None:
                raise ValueError("cross-attention needs the encoder's output")
            k, v = (split_by(project(step.memory.hidden), self.head_dim) for project in (self.k, self.v))
            if kept is not None:
                kept.write(k, v)
        q, places = split_by(self.q(x), self.head_dim), torch.arange(k.shape[2], device=x.device)
        visible = OfMemory(step.index, places, mask_kind="all", text=step.memory.text if step.memory else None)
        scoring = Scoring(number(self.spec.scale), dropout=self.spec.dropout if self.training else 0.0)
        return self.o(attend(q, k.to(q.dtype), v.to(q.dtype), visible, scoring).transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> EncoderCache:
        """Empty cache for `batch` rows of up to `capacity` encoder tokens."""
        _, kv_heads, head_dim = self.spec.sizes()
        shape = batch, kv_heads, capacity, head_dim
        return EncoderCache(*(torch.zeros(shape, dtype=dtype, device=self.k.weight.device) for _ in range(2)))
