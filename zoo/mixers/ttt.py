"""TTT-Linear: a state that is a linear model, trained on the text at test time."""

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
from zoo.projections import project_all
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import HeadFeatures, Heads
from zoo.site import ForwardPass, LayerSite

START, NOW = "start of the mini-batch", "now"
"""Cache names of the weights at which gradients are taken, and of the current weights."""
EPS = 1e-6
"""ε of the norm."""


class TTT(Stateful):
    """z_t = f(θ_Q x_t; W_t), W_t = W_0 − Σ_{s≤t} η_s ∇ℓ(W_{t'(s)}; x_s), ℓ(W; x) = ‖f(θ_K x; W) − θ_V x‖²,
    f(x; W) = x + norm(W x): the state is a model, and each token is a training step for it. Sun et al. 2024
    (TTT-Linear), arXiv:2407.04620, §2.

    W: (n, n) of each head, W_0 learned; t'(s) is the last token before s's mini-batch of b tokens, so that its b
    gradients are taken at the same weights; norm is LayerNorm with a gain and a bias per head; η = η_base · σ(θ_lr x),
    one number per head, divided by n as in the released code. out = W_o z, as in the paper's Transformer backbone:
    without the released code's convolutions, gates, positions and factors by position in the mini-batch.

    Mini-batches are counted from the beginning of each row's text. Within a mini-batch (dual form), W_t q_t = W q_t −
    Σ_{s≤t} (k_s · q_t) G_s with G_s = η_s ∂ℓ/∂(W k_s).
    """

    examples: ClassVar[Examples] = ({"chunk": 4, "head_dim": 5},)
    counts_places: ClassVar[bool] = True
    kind: Literal["ttt"] = "ttt"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    heads: Heads = 4
    """H: number of heads, each with its own weight matrix W."""
    head_dim: HeadFeatures | None = None
    """n: features of a head; null for d_model / heads."""
    chunk: PositiveInt = 16
    """b: tokens per mini-batch; changes results, unlike the `chunk` of other mixers with a state."""
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
        return TTTLayer(self, site.d_model)

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
    """FLOPs of the reads and the inner training."""

    @property
    def token(self) -> float:
        """FLOPs per token of W k, the gradient's outer product, and W q."""
        return 6.0 * self.state

    def computed(self, length: int) -> float:
        """FLOPs of the dual form for a whole text of `length` tokens, without the final state."""
        chunks = ScanChunks(length, min(self.chunk, length))
        reading = 4.0 * self.state * chunks.width + 4.0 * self.heads * self.features * chunks.width**2
        return chunks.count * reading + 2.0 * self.state * (chunks.count - 1) * chunks.width


class MiniBatch(NamedTuple):
    """Projected tokens, in float32 or wider: q, k, v: (B, H, C, n), η: (B, H, C, 1), all zero in empty slots."""

    q: Tensor
    k: Tensor
    v: Tensor
    rate: Tensor


class TTTLayer(StatefulLayer):
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
        tokens = torch.cat((*project_all(x, self.q, self.k, self.v), rate), dim=-1).to(kind)
        start = None if states is None else states.read(START, kind)
        now = None if states is None else states.read(NOW, kind)
        with torch.autocast(x.device.type, enabled=False):
            if start is not None and now is not None and x.shape[1] == 1:
                begins = (step.order.reshape(-1, 1, 1, 1) % self.spec.chunk) == 0
                read, start, now = self._one(self._mini_batch(tokens), torch.where(begins, now, start), now)
            else:
                layout = Layout.of(step, self.spec.chunk, continued=start is not None)
                read, start, now = self._all(tokens, layout, start, now, keep=states is not None)
        if states is not None:
            states.write(START, start)
            states.write(NOW, now)
        return self.o(read.to(x.dtype))

    def _one(self, mini: MiniBatch, start: Tensor, now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One token after cached ones: output (B, 1, H·n), the mini-batch's first weights, those after the token."""
        now = now - mini.k.transpose(-1, -2) @ self._gradient(mini, start)
        return self._read(mini.q, mini.q @ now).transpose(1, 2).flatten(2), start, now

    def _all(
        self, tokens: Tensor, layout: Layout, start: Tensor | None, now: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One mini-batch after the other: outputs (B, T, H·n), the last one's first weights, and those after it."""
        cut = layout.cut(tokens)
        first = self.weights.to(tokens.dtype).expand(tokens.shape[0], -1, -1, -1)
        if start is None or now is None:
            start = now = first
        else:
            # A row whose mini-batch is full begins the next one.
            start = torch.where(layout.begins[..., None], now, start)
        reads, starts, count = [], [start], layout.chunks.count
        for i, batch in enumerate(cut.unbind(1)):
            mini = self._mini_batch(batch)
            gradient = self._gradient(mini, starts[-1])
            # Dual form: (B, H, C, C) scores times gradients
            near = (mini.q @ mini.k.transpose(-1, -2)).tril() @ gradient
            reads.append(self._read(mini.q, mini.q @ now - near).transpose(1, 2).flatten(2))
            if keep or i + 1 < count:
                now = now - mini.k.transpose(-1, -2) @ gradient
            starts.append(now)
        return layout.join(torch.stack(reads, dim=1)), layout.last(torch.stack(starts[:count], dim=1)), now

    def _mini_batch(self, tokens: Tensor) -> MiniBatch:
        """(B, C, 3·H·n + H) → q, k, v and η."""
        inner, heads = self.spec.inner, self.spec.heads
        parts = tokens.split((inner, inner, inner, heads), dim=-1)
        return MiniBatch(*(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts))

    def _gradient(self, mini: MiniBatch, weights: Tensor) -> Tensor:
        """G = η ∂ℓ/∂(W k): (B, H, C, n). The norm's backward pass removes the mean and the part along the output."""
        unit, spread = _normed(mini.k @ weights)
        error = 2 * (mini.k + self.gain * unit + self.bias - mini.v) * self.gain
        along = unit * (error * unit).mean(dim=-1, keepdim=True)
        return mini.rate * (error - error.mean(dim=-1, keepdim=True) - along) / spread

    def _read(self, q: Tensor, z: Tensor) -> Tensor:
        """f = q + norm(z), both (B, H, C, n)."""
        return q + self.gain * _normed(z)[0] + self.bias


def _normed(z: Tensor) -> tuple[Tensor, Tensor]:
    """z with mean 0 and standard deviation 1, (…, n), and z's standard deviation, (…, 1)."""
    centred = z - z.mean(dim=-1, keepdim=True)
    spread = (centred.square().mean(dim=-1, keepdim=True) + EPS).sqrt()
    return centred / spread, spread
