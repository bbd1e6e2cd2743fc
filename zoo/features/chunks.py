"""Layers that run on chunks of tokens with learned borders, for byte-level models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import BORDERS, ChunkCache
from zoo.caching.states import StateCache
from zoo.compatibility.traits import ROWS_CHOSEN, Claim, Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, Layers, Model, NewCache, Runner, new_norm, norm_parameters
from zoo.init import Linear
from zoo.kernels.compiling import is_fake
from zoo.settings.edits import SpecJson
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, PartCost, matmul_cost

BORDER = 0.5
"""Threshold: a chunk begins where the border probability is at least this."""
KEY, SMOOTHED = BORDERS


class Chunks(Feature):
    """Dynamic chunking with one stage. Hwang et al. 2025 (H-Net), arXiv:2507.07955 §2.2.

    x: (T, D) is the normalised output of the first layers, the encoder. A chunk begins at a token unlike its
    predecessor: p_t = ½ (1 − cos(W_q x_t, W_k x_{t−1})), p_1 = 1, b_t = [p_t ≥ ½].
    The inner layers run on the M tokens that begin a chunk: ẑ = layers(x[b]): (M, D), normalised.
    Smoothing: z̄_j = P_j ẑ_j + (1 − P_j) z̄_{j−1}, with P = p[b].
    The last layers, the decoder, read c_t z̄ + W_r x_t + r, with z̄ of the token's chunk. c_t = p_t if b_t, 1 − p_t if
    not; its value is replaced by 1, its gradient kept (straight-through estimator).
    The objective gains `loss` · N/(N−1) · ((N−1) F G + (1−F)(1−G)), with F the mean of b and G the mean of p, over each
    text and then averaged, as in the paper, or over the batch. The factor of `loss` is 1 if F = G = 1/N.

    W_q and W_k start as the identity, W_r as zero. Positions in the inner layers count chunks, not tokens. The inner
    layers are as wide as the others; the paper's are wider. Costs are declared for a border at every N-th token.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.CAUSAL, Ground.WHOLE_BLOCKS})
    breaks: ClassVar[Grounds] = ROWS_CHOSEN | {Ground.WHOLE_STREAM, Ground.ONE_STACK}
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    ratio: Annotated[float, Field(gt=1)] = 6.0
    """N: target number of tokens per chunk."""
    encoder_layers: PositiveInt = 2
    """Number of first layers, which run on all tokens."""
    decoder_layers: PositiveInt = 2
    """Number of last layers, which run on all tokens again."""
    loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.03
    """Weight of the loss that pulls the mean chunk length towards N tokens."""

    loss_over: Annotated[Literal["text", "batch"], Fact.TRAINING] = Field(
        default="text", exclude_if=lambda over: over == "text"
    )
    """Tokens over which F and G are averaged: each text, as in the paper, or the batch, as in the authors' code
    (https://github.com/goombalab/hnet), which lets texts differ in their chunk lengths."""

    @property
    def couples_rows(self) -> str | None:
        return "chunks.loss_over is batch" if self.loss_over == "batch" else None

    def inner(self, n_layers: int) -> range:
        """The layers that run on chunks."""
        return range(self.encoder_layers, n_layers - self.decoder_layers)

    def count(self, tokens: int) -> int:
        """Expected number of chunks in `tokens` tokens."""
        return math.ceil(tokens / self.ratio)

    def check(self, model: Model) -> None:
        if not self.inner(model.n_layers):
            least = self.encoder_layers + self.decoder_layers + 1
            raise SpecError(
                "", f"needs n_layers of at least {least}, one between encoder and decoder, not {model.n_layers}"
            )

    def claims(self, path: str, model: Model) -> Iterator[Claim]:
        yield Claim(path, needs=self.needs)
        yield Claim(path, breaks=self.breaks, layers=self.inner(model.n_layers))

    def build(self, model: Model) -> Chunking:
        return Chunking(self, model)

    def cost(self, model: Model, context: int) -> PartCost:
        matrices = 3 * model.d_model * model.d_model
        return matmul_cost(matrices + model.d_model + 2 * norm_parameters(model), matrices)

    def cache_elements(self, model: Model) -> int:
        return len(BORDERS) * model.d_model

    def subset(self, model: Model, layer: int) -> Chunks | None:
        return self if layer in self.inner(model.n_layers) else None

    def least_layers(self, first: int, alike: bool) -> int:
        return first + 3

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        return small | {"encoder_layers": 1, "decoder_layers": 1}


class FromStart(Linear):
    """A linear projection initialised to a given matrix. start: (out, in)."""

    def __init__(self, start: Tensor, *, bias: bool = False) -> None:
        super().__init__(*start.shape, bias=bias, role="input")
        self.initial_std = {"weight": 0.0}
        self.initial = {"weight": start}


class Chunking(Runner):
    """Encoder output (B, T, D) → decoder input (B, T, D). Taps `borders`: (B, T), true where a chunk begins."""

    name: ClassVar[str] = "chunking"
    shell: ClassVar[int] = 4

    def __init__(self, spec: Chunks, model: Model) -> None:
        super().__init__()
        d_model = model.d_model
        self.spec, self.layers = spec, spec.inner(model.n_layers)
        self.encoder_norm, self.main_norm = new_norm(model), new_norm(model)
        self.q, self.k = FromStart(torch.eye(d_model)), FromStart(torch.eye(d_model))
        self.residual = FromStart(torch.zeros(d_model, d_model), bias=True)

    # The number of chunks depends on the data: a graph that torch compiles for one number would fit no other.
    # torch.compiler.disable does the same, but loads the compiler on import, which takes seconds.
    @_disable_dynamo
    def run(self, x: Tensor, step: ForwardPass, kept: Sequence[LayerCache | None], run: Layers) -> Tensor:
        cache = kept_by(self, kept[0], ChunkCache)
        x = self.encoder_norm(x)
        place = step.index.expand(x.shape[:2]) if step.left_pad is None else step.index - step.left_pad[:, None]
        p = self._probabilities(x, cache).masked_fill(place == 0, 1.0)
        borders = self.begins(p) & (place >= 0)
        step.tap("borders", lambda: borders)
        if self.training:
            step.losses.append(self.spec.loss * ratio_loss(p, borders, self.spec.ratio, self.spec.loss_over))
        # Fake tensors, as when memory is predicted, have no values: the expected number stands in.
        counts = [self.spec.count(x.shape[1])] * len(x) if is_fake(borders) else borders.sum(dim=1).tolist()
        # (B, M): positions where chunks begin, in order. Rows with fewer chunks are padded with other positions.
        first = borders.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, : max(1, *counts)]
        chunks = x.gather(1, first[..., None].expand(-1, -1, x.shape[-1]))
        if cache is None:
            # Padding comes after a row's real chunks, and the layers are causal, so it affects nothing that is read.
            out = run(self.layers, chunks, step.inner(chunks.shape[1]), [None] * len(self.layers))
        else:
            out = self._row_by_row(run, chunks, counts, step, cache)
        z = self._smoothed(self.main_norm(out), p.gather(1, first), cache, counts)
        # Tokens before the first border of this pass belong to the last chunk of the previous pass: entry 0 of z.
        z = z.gather(1, borders.cumsum(dim=1)[..., None].expand_as(x))
        certain = torch.where(borders, p, 1 - p)[..., None]
        residual: Tensor = self.residual(x)
        return (z + z * (certain - certain.detach())).to(x.dtype) + residual

    def new_entries(self, new: NewCache, batch: int, dtype: torch.dtype) -> list[LayerCache]:
        rows = [[new(layer, 1) for layer in self.layers] for _ in range(batch)]
        shapes = dict.fromkeys(BORDERS, (self.q.in_features,))
        return [ChunkCache(rows, StateCache.zeros(batch, shapes, self.q.weight, dtype))]

    def begins(self, p: Tensor) -> Tensor:
        """Border probabilities → mask of the tokens that begin a chunk."""
        return p >= BORDER

    def _probabilities(self, x: Tensor, cache: ChunkCache | None) -> Tensor:
        """p: (B, T), the probability of a border before each token."""
        q, k = self.q(x), self.k(x)
        before = cache.read(KEY, k.dtype) if cache is not None else None
        before = torch.zeros_like(k[:, 0]) if before is None else before
        keys = torch.cat((before[:, None], k[:, :-1]), dim=1)
        if cache is not None:
            cache.write(KEY, k[:, -1])
        kind = torch.promote_types(q.dtype, torch.float32)
        return (1 - F.cosine_similarity(q.to(kind), keys.to(kind), dim=-1)) / 2

    def _smoothed(self, chunks: Tensor, p: Tensor, cache: ChunkCache | None, counts: Sequence[int]) -> Tensor:
        """ẑ: (B, M, D), P: (B, M) → z̄: (B, 1 + M, D), the first from the previous pass, or zero without one."""
        kind = torch.promote_types(chunks.dtype, torch.float32)
        before = cache.read(SMOOTHED, kind) if cache is not None else None
        found = [torch.zeros_like(chunks[:, 0], dtype=kind) if before is None else before]
        for new, share in zip(chunks.to(kind).unbind(1), p.to(kind).unbind(1), strict=True):
            found.append(torch.lerp(found[-1], new, share[:, None]))
        out = torch.stack(found, dim=1)
        if cache is not None:
            cache.write(SMOOTHED, out[range(len(counts)), list(counts)])
        return out

    def _row_by_row(
        self, run: Layers, chunks: Tensor, counts: Sequence[int], step: ForwardPass, cache: ChunkCache
    ) -> Tensor:
        """Inner layers on each row separately, since cached rows differ in their number of earlier chunks."""
        out = torch.zeros_like(chunks)
        for row, count in enumerate(counts):
            if count:
                own = chunks[row : row + 1, :count]
                after = step.inner(count, cache.lengths[row])
                out[row : row + 1, :count] = run(self.layers, own, after, cache.rows[row])
                cache.lengths[row] += count
        return out


def ratio_loss(p: Tensor, borders: Tensor, ratio: float, over: Literal["text", "batch"] = "text") -> Tensor:
    """p, borders: (B, T) → the ratio loss (), 1 if F = G = 1/N. over: tokens over which F and G are averaged."""
    if over == "batch":
        p, borders = p.flatten()[None], borders.flatten()[None]
    f, g = borders.to(p.dtype).mean(dim=1), p.mean(dim=1)
    return (ratio / (ratio - 1) * ((ratio - 1) * f * g + (1 - f) * (1 - g))).mean()
