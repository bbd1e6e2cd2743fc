"""Alternating updates: a residual stream several times as wide as its layers, each of which runs on one part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, Model, Streams, new_norm, norm_parameters
from zoo.init import Linear
from zoo.settings.field_tags import Fact
from zoo.site import PartCost, matmul_cost

LEAST_MEAN_SQUARE = 1e-5
"""Minimum mean square of a projected stream before it is normalised."""


class AltUp(Feature):
    """n streams X: (n, D), of which each layer runs on one, x_a, and predicts the others. Baykal et al. 2023 (AltUp),
    arXiv:2301.13310, in the form of Gemma 3n (Google 2025, https://ai.google.dev/gemma/docs/gemma-3n).

    m(x) = tanh(W_r norm(x) / D): (n,)
    X̂ = X + mat(W_p m(x_a)) X          mat: (n, n)
    y = layer(x̂_a)
    x_i ← x̂_i + (1 + [W_c m(y)]_i)(y − x̂_a)

    Stream 0 starts as the embedded token e, stream i as W_i e; the output is the mean of x_0 and all U_i x_i. W_i e and
    U_i x_i are scaled to the root mean square of e and x_0. In the paper a layer reads x_a itself, and the coefficients
    of the prediction X̂ and of y − x̂_a are learned numbers that do not depend on the token.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.PLAIN_STREAM, Ground.WHOLE_BLOCKS, Ground.WHOLE_STREAM})
    breaks: ClassVar[Grounds] = frozenset({Ground.SINGLE_STREAM})
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    writes_after_layers: ClassVar[bool] = True

    streams: Annotated[int, Field(ge=2)] = 4
    """n: number of residual streams."""
    active: NonNegativeInt = 0
    """a: index of the stream that the layers run on, counted from 0."""
    clip: Annotated[PositiveFloat | None, Fact.TRAINING] = 120.0
    """Bound in training: entries of W_p and W_c are clamped to ± this value; null for no bound."""

    @model_validator(mode="after")
    def _among_the_streams(self) -> AltUp:
        if self.active >= self.streams:
            raise SpecError("active", f"must be below streams = {self.streams}, not {self.active}")
        return self

    def build(self, model: Model) -> AltUpStreams:
        return AltUpStreams(self, model)

    def cost(self, model: Model, context: int) -> PartCost:
        n, d_model, blocks = self.streams, model.d_model, max(model.block_of_each) + 1
        ends = 2 * (n - 1) * d_model * d_model
        own = norm_parameters(model) + n * d_model + n**3 + n**2
        work = 2 * n * d_model + n**3 + n**2 + n**2 * d_model
        return matmul_cost(ends + blocks * own, ends + model.n_layers * work)

    def closing_flops(self, model: Model) -> float:
        return 2.0 * (self.streams - 1) * model.d_model * model.d_model


class AltUpStreams(Streams):
    """Expands the stream into n, predicts and corrects around each layer, and averages the streams at the end."""

    name: ClassVar[str] = "altup"
    shell: ClassVar[int] = 0

    def __init__(self, spec: AltUp, model: Model) -> None:
        super().__init__()
        d_model, others = model.d_model, range(spec.streams - 1)
        self.block_of_each = model.block_of_each
        self.enter = nn.ModuleList(Linear(d_model, d_model, role="input") for _ in others)
        self.leave = nn.ModuleList(Linear(d_model, d_model, role="input") for _ in others)
        blocks = range(max(self.block_of_each) + 1)
        self.layers = nn.ModuleList(AltUpLayer(spec, new_norm(model), d_model) for _ in blocks)

    def open(self, x: Tensor) -> Tensor:
        """(B, T, D) embedded tokens → (B, T, n, D)."""
        return torch.stack([x, *(as_large(project(x), x) for project in self.enter)], dim=-2)

    def close(self, x: Tensor) -> Tensor:
        """(B, T, n, D) → (B, T, D)."""
        first, *others = x.unbind(dim=-2)
        projected = (as_large(project(other), first) for project, other in zip(self.leave, others, strict=True))
        return torch.stack([first, *projected]).mean(dim=0)

    def around(self, layer: int, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        out: Tensor = self.layers[self.block_of_each[layer]](x, run)
        return out


class AltUpLayer(nn.Module):
    """X: (B, T, n, D), layer: (B, T, D) → (B, T, D); returns X after the layer: (B, T, n, D)."""

    def __init__(self, spec: AltUp, norm: nn.Module, d_model: int) -> None:
        super().__init__()
        n = spec.streams
        self.active, self.clip = spec.active, spec.clip
        self.norm = norm
        self.router = Linear(d_model, n, role="input")
        self.predict = Linear(n, n * n, role="input")
        self.correct = Linear(n, n, role="input")

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        mixing = self._asked(self.predict, x[..., self.active, :]).unflatten(-1, (x.shape[-2], x.shape[-2]))
        predicted = x + mixing.to(x.dtype) @ x  # X̂: (B, T, n, D)
        active = predicted[..., self.active, :]
        out = layer(active)
        weights = 1 + self._asked(self.correct, out)
        corrected: Tensor = predicted + weights[..., None].to(out.dtype) * (out - active)[..., None, :]
        return corrected

    def _asked(self, project: Linear, x: Tensor) -> Tensor:
        """x: (B, T, D) → the projection of m(x): (B, T, outputs)."""
        routed = self.router(self.norm(x) / x.shape[-1]).float().tanh().to(x.dtype)
        weight = project.weight
        if self.training and self.clip is not None:
            weight = weight.clamp(-self.clip, self.clip)
        return F.linear(routed, weight)


def as_large(x: Tensor, like: Tensor) -> Tensor:
    """x rescaled to the root mean square of `like`, over the last dimension."""
    wanted = like.square().mean(dim=-1, keepdim=True).sqrt()
    return x * wanted / x.square().mean(dim=-1, keepdim=True).clamp(min=LEAST_MEAN_SQUARE).sqrt()
