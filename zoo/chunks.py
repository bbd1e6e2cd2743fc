"""Layers that run on chunks of tokens, whose borders the model chooses: for models of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from zoo.axis import Spec
from zoo.cache import LayerCache
from zoo.cache_chunks import BORDERS, ChunkCache
from zoo.cache_states import StateCache
from zoo.depth_routing import DepthRouting
from zoo.errors import SpecError
from zoo.facts import Fact
from zoo.init import Linear
from zoo.recursion import Turn, turn_at
from zoo.residuals import MakeNorm
from zoo.site import PartCost, Step, matmul_cost

if TYPE_CHECKING:
    from zoo.block_spec import BlockSpec
    from zoo.spec import ModelSpec

BORDER = 0.5
"""The least probability of a border where there is one."""
KEY, SMOOTHED = BORDERS
Main = Callable[[Tensor, Step, Sequence[LayerCache | None]], Tensor]
"""Chunks (B, M, D), their pass, and a cache for each layer → (B, M, D), normalised."""


class Chunks(Spec):
    """Dynamic chunking with one stage. Hwang et al. 2025 (H-Net), arXiv:2507.07955 §2.2.

    x: (T, D) leaves the first layers, the encoder, normalised. A chunk begins where a token is unlike the one before:
    p_t = ½ (1 − cos(W_q x_t, W_k x_{t−1})), p_1 = 1, b_t = [p_t ≥ ½].
    The layers between run on the M tokens that begin a chunk: ẑ = layers(x[b]): (M, D), normalised.
    z̄_j = P_j ẑ_j + (1 − P_j) z̄_{j−1}, with P = p[b].
    The last layers, the decoder, read c_t z̄ + W_r x_t + r, with z̄ that of the token's chunk. c_t = p_t where b_t, else
    1 − p_t, counts as 1 and has its own gradient (straight through).
    The objective gets `loss` · N/(N−1) · ((N−1) F G + (1−F)(1−G)), with F the mean of b and G that of p over a text, in
    the mean over texts: 1 where one token in N begins a chunk.

    W_q and W_k start as the identity, W_r as zero. Layers between number chunks, not tokens, and have the same width as
    the others, where the paper's are wider. Costs are declared for a border at every N-th token.
    """

    ratio: Annotated[float, Field(gt=1)] = 6.0
    """N, tokens per chunk that training aims at."""
    encoder_layers: PositiveInt = 2
    decoder_layers: PositiveInt = 2
    loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.03

    def inner(self, n_layers: int) -> range:
        """The layers that run on chunks."""
        return range(self.encoder_layers, n_layers - self.decoder_layers)

    def count(self, tokens: int) -> int:
        """Chunks that so many tokens are expected to make."""
        return math.ceil(tokens / self.ratio)

    def check(self, model: ModelSpec, layers: Sequence[tuple[str, BlockSpec]]) -> None:
        """Raise SpecError where a model cannot have them. layers: each with its path."""
        inner = self.inner(len(layers))
        if not inner:
            raise SpecError("chunks", f"leave no layer of {len(layers)} between encoder and decoder")
        for name, why in _TOKENS_ALONE.items():
            if getattr(model, name):
                raise SpecError("chunks", f"cannot be combined with {name}, {why}")
        if model.visible != "causal":
            raise SpecError("chunks", f"are of models that read from left to right, not of visible: {model.visible}")
        for i in inner:
            where, block = layers[i]
            if (reason := unlike_tokens(block, model.d_model)) is not None:
                raise SpecError("chunks", f"{where}, which runs on them, {reason}")

    def cost(self, d_model: int, norm: int) -> PartCost:
        """Per token, of what is between encoder, layers on chunks, and decoder. norm: parameters of one."""
        return matmul_cost(3 * d_model * d_model + d_model + 2 * norm, 3 * d_model * d_model)

    def state_elements(self, d_model: int) -> int:
        """Numbers kept per sequence, beside what layers keep."""
        return len(BORDERS) * d_model


_TOKENS_ALONE: Mapping[str, str] = {
    "altup": "whose streams pass all layers",
    "unet_skips": "which add a layer's stream to another's",
    "value_embeddings": "which layers read by token",
    "per_layer_embeddings": "which layers read by token",
    "layer_loss": "by which every layer predicts a token",
    "encoder": "whose text the layers would read",
}


def unlike_tokens(block: BlockSpec, d_model: int) -> str | None:
    """Why a block cannot run on chunks or on chosen tokens: rows have different numbers of them, and are filled up at
    the end."""
    if block.ffn.cost(d_model).inactive:
        return "has experts, which would count what fills up a batch as tokens"
    if block.mixer.pass_flops(1):
        return "has positions that are projected once for all rows, which would not have the same tokens"
    if block.mixer.adds_loss:
        return f"has a loss of its own ({block.mixer.kind}), which would count what fills up a batch as tokens"
    if block.mixer.borrows:
        return "reads the keys of another layer (reuse_kv)"
    return "mixes in values of the first layer" if block.mixer.shared_values is not None else None


class Reads(NamedTuple):
    """What a layer reads of a text: a sequence of so many, which is a share of the tokens."""

    context: int
    share: float


def reads_of(model: ModelSpec, context: int) -> Iterator[Reads]:
    """Of every layer, for a text of `context` tokens."""
    for fewer in _fewer(model):
        count = context if fewer is None else fewer.count(context)
        yield Reads(count, count / context)


def runs_in(model: ModelSpec, tokens: int) -> Iterator[float]:
    """Of every layer, the probability that so many tokens make it run."""
    for fewer in _fewer(model):
        yield 1.0 if fewer is None else 1 - (1 - 1 / fewer.ratio) ** tokens


def _fewer(model: ModelSpec) -> Iterator[Chunks | DepthRouting | Turn | None]:
    """What makes every layer run on less than all tokens; None for nothing."""
    for layer, block in enumerate(model.layers):
        yield chunks_at(model, layer) or turn_at(model, layer) or block.depth_routing


def chunks_at(model: ModelSpec, layer: int) -> Chunks | None:
    """What a layer runs on; None for tokens."""
    return model.chunks if model.chunks is not None and layer in model.chunks.inner(model.n_layers) else None


class FromStart(Linear):
    """A projection that starts as a matrix of its own."""

    def __init__(self, start: Tensor, *, bias: bool = False) -> None:
        super().__init__(*start.shape, bias=bias, role="input")
        self.initial_std = {"weight": 0.0}
        self.initial = {"weight": start}


class Chunking(nn.Module):
    """x: (B, T, D), from the encoder → (B, T, D), for the decoder. Shows `borders`: (B, T), where chunks begin."""

    def __init__(self, spec: Chunks, norm: MakeNorm, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.encoder_norm, self.main_norm = norm(), norm()
        self.q, self.k = FromStart(torch.eye(d_model)), FromStart(torch.eye(d_model))
        self.residual = FromStart(torch.zeros(d_model, d_model), bias=True)

    # How many chunks there are is in the data: a program that torch compiles for one number would serve no other.
    # torch.compiler.disable is the same, but loads the compiler with this file, which takes seconds.
    @_disable_dynamo
    def forward(self, x: Tensor, step: Step, main: Main, layers: int, cache: ChunkCache | None) -> Tensor:
        """main: the layers between, so many."""
        x = self.encoder_norm(x)
        place = step.index.expand(x.shape[:2]) if step.left_pad is None else step.index - step.left_pad[:, None]
        p = self._probabilities(x, cache).masked_fill(place == 0, 1.0)
        borders = self.begins(p) & (place >= 0)
        step.tap("borders", lambda: borders)
        if self.training:
            step.losses.append(self.spec.loss * ratio_loss(p, borders, self.spec.ratio))
        counts = self._counts(borders)
        # (B, M): the places where chunks begin, in their order. Rows that have fewer are filled up with other places.
        first = borders.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, : max(1, *counts)]
        chunks = x.gather(1, first[..., None].expand(-1, -1, x.shape[-1]))
        out = _together(main, chunks, step, layers) if cache is None else _row_by_row(main, chunks, counts, step, cache)
        z = self._smoothed(self.main_norm(out), p.gather(1, first), cache, counts)
        # A token before the first chunk of its pass is of the chunk that the last pass ended with: z's first.
        z = z.gather(1, borders.cumsum(dim=1)[..., None].expand_as(x))
        certain = torch.where(borders, p, 1 - p)[..., None]
        residual: Tensor = self.residual(x)
        return (z + z * (certain - certain.detach())).to(x.dtype) + residual

    def new_entries(
        self, new: Callable[[int, int], LayerCache], layers: int, batch: int, dtype: torch.dtype
    ) -> list[LayerCache]:
        """Of the cache of a model of so many layers. new(layer, rows): a layer's own."""
        inner = self.spec.inner(layers)
        rows = [[new(layer, 1) for layer in inner] for _ in range(batch)]
        shapes = dict.fromkeys(BORDERS, (self.q.in_features,))
        between = ChunkCache(rows, StateCache.zeros(batch, shapes, self.q.weight, dtype))
        encoder, decoder = range(inner.start), range(inner.stop, layers)
        return [*(new(layer, batch) for layer in encoder), between, *(new(layer, batch) for layer in decoder)]

    def begins(self, p: Tensor) -> Tensor:
        """Where chunks begin, by the probability of a border."""
        return p >= BORDER

    def _counts(self, borders: Tensor) -> list[int]:
        """Chunks of every row. Where there is only a shape, as when memory is foreseen, the expected number."""
        if isinstance(borders, FakeTensor):
            return [self.spec.count(borders.shape[1])] * len(borders)
        found: list[int] = borders.sum(dim=1).tolist()
        return found

    def _probabilities(self, x: Tensor, cache: ChunkCache | None) -> Tensor:
        """(B, T), of a border before each token."""
        q, k = self.q(x), self.k(x)
        before = cache.read(KEY, k.dtype) if cache is not None else None
        before = torch.zeros_like(k[:, 0]) if before is None else before
        keys = torch.cat((before[:, None], k[:, :-1]), dim=1)
        if cache is not None:
            cache.write(KEY, k[:, -1])
        kind = torch.promote_types(q.dtype, torch.float32)
        out: Tensor = (1 - F.cosine_similarity(q.to(kind), keys.to(kind), dim=-1)) / 2
        return out

    def _smoothed(self, chunks: Tensor, p: Tensor, cache: ChunkCache | None, counts: Sequence[int]) -> Tensor:
        """ẑ: (B, M, D), P: (B, M) → (B, 1 + M, D), z̄, that before the first of them at the head."""
        kind = torch.promote_types(chunks.dtype, torch.float32)
        before = cache.read(SMOOTHED, kind) if cache is not None else None
        found = [torch.zeros_like(chunks[:, 0], dtype=kind) if before is None else before]
        for new, share in zip(chunks.to(kind).unbind(1), p.to(kind).unbind(1), strict=True):
            found.append(torch.lerp(found[-1], new, share[:, None]))
        out = torch.stack(found, dim=1)
        if cache is not None:
            cache.write(SMOOTHED, out[range(len(counts)), list(counts)])
        return out


def _together(main: Main, chunks: Tensor, step: Step, layers: int) -> Tensor:
    """All rows at once. What fills them up comes after all that is read, and no layer sees ahead."""
    return main(chunks, _step_of(chunks, 0, step), [None] * layers)


def _row_by_row(main: Main, chunks: Tensor, counts: Sequence[int], step: Step, cache: ChunkCache) -> Tensor:
    """Each row by itself, after as many chunks as it has had."""
    out = torch.zeros_like(chunks)
    for row, count in enumerate(counts):
        if count:
            own = chunks[row : row + 1, :count]
            out[row : row + 1, :count] = main(own, _step_of(own, cache.lengths[row], step), cache.rows[row])
            cache.lengths[row] += count
    return out


def _step_of(chunks: Tensor, start: int, step: Step) -> Step:
    """The pass over chunks (B, M, D) of which the first is chunk `start` of its row."""
    index = torch.arange(start, start + chunks.shape[1], device=chunks.device)
    own = Step(index, start=start, shared=step.shared, losses=step.losses)
    own.recorder, own.prefix = step.recorder, step.prefix
    return own


def ratio_loss(p: Tensor, borders: Tensor, ratio: float) -> Tensor:
    """p, borders: (B, T) → (), which is 1 where one token in N begins a chunk."""
    f, g = borders.to(p.dtype).mean(dim=1), p.mean(dim=1)
    return (ratio / (ratio - 1) * ((ratio - 1) * f * g + (1 - f) * (1 - g))).mean()
