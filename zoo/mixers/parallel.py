"""Attention and a recurrent mixer in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import PartsCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.errors import under
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers.attention import Attention
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.mixers.mamba import Mamba
from zoo.mixers.mamba2 import Mamba2
from zoo.positions import Position
from zoo.settings.axis import Examples
from zoo.site import ForwardPass, LayerSite, PartCost

ATTENTION, STATE = "attention", "state"


class Parallel(Mixer):
    """out = α · attention(x) + β · state(x), both of the same normalised stream x: (B, T, D). Falcon-H1, Zuo et al.
    2025, arXiv:2507.22448."""

    examples: ClassVar[Examples] = (
        {"attention": {"heads": 4}, "state": {"kind": "mamba2", "head_dim": 12, "state": 5, "chunk": 8}},
        {
            "attention": {"heads": 2, "kv_heads": 1, "head_dim": 6, "window": 3},
            "state": {"kind": "gated_deltanet", "chunk": 4, "head_dim": 5, "v_dim": 6},
            "attention_scale": 0.5,
            "state_scale": 2.0,
        },
    )
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["parallel"] = "parallel"
    supports: ClassVar[Operations] = OF_MODULES
    attention: Attention = Attention()
    """Softmax attention, with its own settings, for example `attention.window`."""
    state: Annotated[Mamba2 | Mamba | GatedDeltaNet, Field(discriminator="kind")] = Mamba2()
    """Recurrent mixer: `mamba2`, `mamba` or `gated_deltanet`, given as a map with its `kind`."""
    attention_scale: PositiveFloat = 1.0
    """α: factor on the attention's output."""
    state_scale: PositiveFloat = 1.0
    """β: factor on the recurrent mixer's output."""

    @property
    def components(self) -> tuple[Mixer, ...]:
        return self.attention, self.state

    def resolve(self, d_model: int) -> Self:
        resolved = {}
        for name, part in zip((ATTENTION, STATE), self.components, strict=True):
            with under(name):
                resolved[name] = part.resolve(d_model)
                resolved[name].check_scan()
        return self.model_copy(update=resolved)

    def build(self, site: LayerSite) -> MixerLayer:
        return ParallelLayer(self, site)

    def _sum(self, count: Callable[[Mixer], float]) -> float:
        return sum(map(count, self.components))

    def cost(self, d_model: int, context: int) -> PartCost:
        return self.attention.cost(d_model, context) + self.state.cost(d_model, context)

    def decode_flops(self, d_model: int, context: int) -> float:
        return self._sum(lambda part: part.decode_flops(d_model, context))

    def training_cost(self, d_model: int, context: int) -> PartCost:
        return self.attention.training_cost(d_model, context) + self.state.training_cost(d_model, context)

    def pass_flops(self, context: int) -> float:
        return self._sum(lambda part: part.pass_flops(context))

    def state_flops(self, d_model: int, context: int) -> float:
        return self._sum(lambda part: part.state_flops(d_model, context))

    def cache_elements(self, capacity: int) -> int:
        return self.attention.cache_elements(capacity) + self.state.cache_elements(capacity)

    def cached(self) -> tuple[tuple[int, int], ...]:
        return self.attention.cached()

    def positions(self) -> tuple[tuple[Position, int], ...]:
        return self.attention.positions()

    def borrowed_elements(self, capacity: int) -> int:
        return self.attention.borrowed_elements(capacity)

    @property
    def caution(self) -> str | None:
        return self.attention.caution

    @property
    def kv(self) -> str | None:
        return self.attention.kv

    @property
    def borrows(self) -> bool:
        return self.attention.borrows

    @property
    def value_heads(self) -> tuple[int, int] | None:
        return self.attention.value_heads

    @property
    def shared_values(self) -> tuple[int, int] | None:
        return self.attention.shared_values


class ParallelLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Parallel, site: LayerSite) -> None:
        super().__init__()
        self.scales = spec.attention_scale, spec.state_scale
        self.attention, self.state = spec.attention.build(site), spec.state.build(site)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        kept = kept_by(self, cache, PartsCache)
        parts = {} if kept is None else kept.parts
        alpha, beta = self.scales
        attended: Tensor = self.attention(x, step, parts.get(ATTENTION))
        carried: Tensor = self.state(x, step, parts.get(STATE))
        return (attended if alpha == 1 else alpha * attended) + (carried if beta == 1 else beta * carried)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        parts = {ATTENTION: self.attention, STATE: self.state}
        return PartsCache({name: part.new_cache(batch, capacity, dtype) for name, part in parts.items()})

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        return self.attention.moved(kept, by)
