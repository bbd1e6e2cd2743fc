"""A linear model that learns from the text while it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import Operation, Operations
from zoo.conv import on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._layout import Layout
from zoo.mixers._linear import Stateful, StatefulLayer, check_width
from zoo.mixers._scan import ScanChunks, ScanCost
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import HeadFeatures, Heads
from zoo.site import ForwardPass, LayerSite

START, NOW = "start of the mini-batch", "now"
"""Names in the cache of the weights at which gradients are taken, and of those used for reading."""
EPS = 1e-6
"""Epsilon of the norm."""


class TTT(Stateful):
    """z_t = f(θ_Q x_t; W_t), W_t = W_0 − Σ_{s≤t} η_s ∇ℓ(W_{t'(s)}; x_s), ℓ(W; x) = ‖f(θ_K x; W) − θ_V x‖²,
    f(x; W) = x + norm(W x): a state that is a model, and reading that is training it. Sun et al. 2024 (TTT-Linear),
    arXiv:2407.04620, §2.

    W: (n, n) of each head, W_0 learned; t'(s) is the last token before the mini-batch of b tokens that s is in, so that
    b gradients are of the same weights; norm is LayerNorm with a gain and a bias for each head; η = η_base · σ(θ_lr x),
    one number per head, divided by n as in the released code. out = W_o z, as the paper's Transformer backbone has it:
    without the convolutions, gates, positions and factors by place in the mini-batch of its released code.

    Mini-batches are counted from where each row's text begins. Within one (the dual form), W_t q_t = W q_t −
    Σ_{s≤t} (k_s · q_t) G_s with G_s = η_s ∂ℓ/∂(W k_s).
    """

    examples: ClassVar[Examples] = ({"chunk": 4, "head_dim": 5},)
    counts_places: ClassVar[bool] = True
    kind: Literal["ttt"] = "ttt"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    heads: Heads = 4
    """H: number of heads, each with a weight matrix W of its own."""
    head_dim: HeadFeatures | None = None
    """n; null for d_model / heads."""
    chunk: PositiveInt = 16
    """b, which is part of the architecture, unlike that of other states."""
    base_rate: PositiveFloat = 1.0
    """η_base: factor on the inner learning rate σ(θ_lr x) / n."""

    def resolve(self, d_model: int) -> Self:
        if self.head_dim is None:
            check_width(self.heads, d_model, "head_dim")
        return self.model_copy(update={"head_dim": self.head_dim or d_model // self.heads})

    @property
    def features(self) -> int:
        """n of a resolved spec."""
        return number(self.head_dim)

    @property
    def inner(self) -> int:
        """Features of all heads."""
        return self.heads * self.features

    def build(self, site: LayerSite) -> MixerLayer:
        return LearnsWhileReadingLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return 4 * d_model * self.inner + d_model * self.heads

    def vectors(self, d_model: int) -> int:
        return self.inner * (self.features + 2)

    def scanning(self) -> ScanCost:
        return TTTCost(self.heads, self.features, self.heads, self.features, self.chunk)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        return dict.fromkeys((START, NOW), (self.heads, self.features, self.features))


@dataclass(frozen=True)
class TTTCost(ScanCost):
    """FLOPs of reading and learning."""

    @property
    def token(self) -> float:
        """W k, the gradient's outer product, and W q."""
        return 6.0 * self.state

    def computed(self, length: int) -> float:
        """FLOPs of the dual form, over a text from its beginning that leaves no state behind."""
        chunks = ScanChunks(length, min(self.chunk, length))
        reading = 4.0 * self.state * chunks.width + 4.0 * self.heads * self.features * chunks.width**2
        return chunks.count * reading + 2.0 * self.state * (chunks.count - 1) * chunks.width


class MiniBatch(NamedTuple):
    """Projected tokens, in float32 or more: q, k, v: (B, H, C, n), η: (B, H, C, 1), zero where there is no token."""

    q: Tensor
    k: Tensor
    v: Tensor
    rate: Tensor


class LearnsWhileReadingLayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"weights": "input", "gain": "gain", "bias": "bias"}

    def __init__(self, spec: TTT, d_model: int) -> None:
        super().__init__(spec)
        self.spec = spec
        self.q, self.k = (Linear(d_model, spec.inner, role="input") for _ in range(2))
        self.v = Linear(d_model, spec.inner, role="input", values=True)
        self.rate = Linear(d_model, spec.heads, role="input")
        self.o = Linear(spec.inner, d_model, role="output")
        self.weights = nn.Parameter(torch.zeros(spec.heads, spec.features, spec.features))
        self.gain = nn.Parameter(torch.ones(spec.heads, 1, spec.features))
        self.bias = nn.Parameter(torch.zeros(spec.heads, 1, spec.features))

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        states, kind = kept_by(self, cache, StateCache), torch.promote_types(x.dtype, torch.float32)
        rate = on_text(self.rate(x).sigmoid(), step) * (self.spec.base_rate / self.spec.features)
        tokens = torch.cat((self.q(x), self.k(x), self.v(x), rate), dim=-1).to(kind)
        start = None if states is None else states.read(START, kind)
        now = None if states is None else states.read(NOW, kind)
        with torch.autocast(x.device.type, enabled=False):
            if start is not None and now is not None and x.shape[1] == 1:
                begins = (step.order.reshape(-1, 1, 1, 1) % self.spec.chunk) == 0
                read, start, now = self._one(self._lesson(tokens), torch.where(begins, now, start), now)
            else:
                layout = Layout.of(step, self.spec.chunk, continued=start is not None)
                read, start, now = self._all(tokens, layout, start, now, keep=states is not None)
        if states is not None:
            states.write(START, start)
            states.write(NOW, now)
        return self.o(read.to(x.dtype))

    def _one(self, lesson: MiniBatch, start: Tensor, now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One token with others before it: (B, 1, H·n), and the weights."""
        now = now - lesson.k.transpose(-1, -2) @ self._gradient(lesson, start)
        return self._read(lesson.q, lesson.q @ now).transpose(1, 2).flatten(2), start, now

    def _all(
        self, tokens: Tensor, layout: Layout, start: Tensor | None, now: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One mini-batch after the other: (B, T, H·n), the weights that the last began with, and those after it."""
        cut = layout.cut(tokens)
        first = self.weights.to(tokens.dtype).expand(tokens.shape[0], -1, -1, -1)
        if start is None or now is None:
            start = now = first
        else:
            # A row whose mini-batch was full begins another.
            start = torch.where(layout.begins[..., None], now, start)
        reads, starts, count = [], [start], layout.chunks.count
        for i, batch in enumerate(cut.unbind(1)):
            lesson = self._lesson(batch)
            gradient = self._gradient(lesson, starts[-1])
            near = (lesson.q @ lesson.k.transpose(-1, -2)).tril() @ gradient
            reads.append(self._read(lesson.q, lesson.q @ now - near).transpose(1, 2).flatten(2))
            if keep or i + 1 < count:
                now = now - lesson.k.transpose(-1, -2) @ gradient
            starts.append(now)
        return layout.join(torch.stack(reads, dim=1)), layout.last(torch.stack(starts[:count], dim=1)), now

    def _lesson(self, tokens: Tensor) -> MiniBatch:
        """(B, C, 3·H·n + H) → q, k, v and η."""
        inner, heads = self.spec.inner, self.spec.heads
        parts = tokens.split((inner, inner, inner, heads), dim=-1)
        return MiniBatch(*(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts))

    def _gradient(self, lesson: MiniBatch, weights: Tensor) -> Tensor:
        """G = η ∂ℓ/∂(W k): (B, H, C, n), through the norm, whose gradient leaves out the mean and what lies along its
        output."""
        unit, spread = _normed(lesson.k @ weights)
        error = 2 * (lesson.k + self.gain * unit + self.bias - lesson.v) * self.gain
        along = unit * (error * unit).mean(dim=-1, keepdim=True)
        return lesson.rate * (error - error.mean(dim=-1, keepdim=True) - along) / spread

    def _read(self, q: Tensor, z: Tensor) -> Tensor:
        """f: q + norm(z), both (B, H, C, n)."""
        return q + self.gain * _normed(z)[0] + self.bias


def _normed(z: Tensor) -> tuple[Tensor, Tensor]:
    """(…, n) with mean 0 and spread 1, and the spread: (…, 1)."""
    centred = z - z.mean(dim=-1, keepdim=True)
    spread = (centred.square().mean(dim=-1, keepdim=True) + EPS).sqrt()
    return centred / spread, spread
