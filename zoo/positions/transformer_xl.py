"""Transformer-XL's relative positions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.positions import Position, PositionLayer, Queries
from zoo.settings.field_tags import ValuesInTests
from zoo.site import ForwardPass, Keys, PartCost


class TransformerXL(Position):
    """score(i, j) = scale · ((q_i + u)·k_j + (q_i + v)·W_R R_{i−j}), with R_m the sines and cosines of m·θ_f,
    θ_f = base^(−2f/n). Dai et al. 2019, arXiv:1901.02860 §3.3.

    Each layer has W_R: (n, n) and u, v: (H, d); n = H·d, which is d_model in the paper. The paper's formulas share u
    and v among layers; its largest models, and XLNet, do not (`untie_r`). u and v start at zero and are added after the
    query norm, if there is one. The recurrence over segments is not implemented: texts are as long as the context.

    W_R R depends on no token: each layer computes it once per pass for all rows, for as many distances as there are
    keys. Its FLOPs count per pass (`zoo.cost(…).flops_per_pass`), and every decoding step takes them too.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    adds_to_scores: ClassVar[bool] = True
    takes_places: ClassVar[bool] = False
    reads_queries: ClassVar[bool] = True
    base: Annotated[float, Field(gt=1), ValuesInTests()] = 10_000.0
    """Base of the sinusoids' frequencies θ_f = base^(−2f/n)."""

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return TransformerXLLayer(self, head_dim, heads)

    def check_ahead(self) -> None:
        raise SpecError("", "transformer_xl needs causal attention: it projects distances to earlier tokens only")

    def layer_cost(self, head_dim: int, heads: int, keys: Keys) -> PartCost:
        features = heads * head_dim
        per_key = 2.0 * features
        work = [per_key * each for each in keys]
        return PartCost(features * features + 2 * features, work[0], work[1], work[2])

    def pass_flops(self, head_dim: int, heads: int, distances: int) -> float:
        return 2.0 * (heads * head_dim) ** 2 * distances


class TransformerXLLayer(PositionLayer):
    """q: (B, H, T, d) → q + u; bias on the scores: (B, H, T, S)."""

    roles: ClassVar = {"u": "bias", "v": "bias"}

    def __init__(self, spec: TransformerXL, head_dim: int, heads: int) -> None:
        super().__init__()
        self.base, self.heads = spec.base, heads
        self.features = heads * head_dim
        self.project = Linear(self.features, self.features, role="input")
        self.u, self.v = (nn.Parameter(torch.zeros(heads, head_dim)) for _ in range(2))

    def rotate_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        return q + self.u[:, None].to(q.dtype)

    def bias_for(self, queries: Queries, step: ForwardPass, places: Tensor) -> Tensor:
        q, scale, window = queries
        q = (q + (self.v - self.u)[:, None].to(q.dtype)) * scale
        if q.shape[2] == 1:
            return self._scores(q, self._waves(step.index - places))
        # Keys of a pass of several tokens are contiguous up to its last token: no visible key is further than `reach`.
        reach = min(places.shape[0], window or places.shape[0])
        name = f"{self.base} {self.features} {reach}"
        waves = step.once(name, lambda: self._waves(torch.arange(reach, device=places.device)))
        distance = (step.index[:, None] - places).clamp(0, reach - 1)
        return self._scores(q, waves).gather(-1, distance.expand(*q.shape[:2], -1, -1))

    def _scores(self, q: Tensor, waves: Tensor) -> Tensor:
        """q: (B, H, T, d), R: (N, n) → q · W_R R: (B, H, T, N)."""
        keys = self.project(waves.to(self.project.weight.dtype)).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
        # (H, B·T, d) times (H, d, N), so that rows need no copies of the keys.
        together = q.transpose(0, 1).flatten(1, 2) @ keys
        scores: Tensor = together.unflatten(1, (q.shape[0], q.shape[2])).transpose(0, 1)
        return scores

    def _waves(self, distance: Tensor) -> Tensor:
        """(N,) → R: (N, n), sines before cosines, float32. An odd last feature is a sine."""
        pairs = torch.arange(0, self.features, 2, device=distance.device)
        angles = distance[:, None].float() * self.base ** (-pairs / self.features)
        return torch.cat((angles.sin(), angles.cos()), dim=-1)[:, : self.features]
