"""One block: a mixer and an FFN, serial or parallel, joined to the residual stream by residual connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.block_features.canon import CanonLayer
from zoo.block_features.depth_routing import DepthRouter
from zoo.block_features.stochastic_depth import StochasticDepth
from zoo.block_spec import BlockSpec
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.chunks import ChunkCache
from zoo.caching.parts import PartsCache, begin_pass
from zoo.caching.states import StateCache
from zoo.init import ExpertLinear, Linear
from zoo.residuals import Branch, Residual, ResidualLayer
from zoo.site import ForwardPass, LayerSite

MIXER, FFN, CANON, CROSS = "mixer", "ffn", "canon", "cross"
"""Keys of a block's parts in its cache."""


class Block(nn.Module):
    """Residual stream → residual stream: (B, T, D), or (B, T, n, D) with n streams. Taps its output as `stream`."""

    def __init__(self, spec: BlockSpec, site: LayerSite) -> None:
        super().__init__()
        self.topology = spec.topology
        self.mixes, self.feeds = not spec.mixer.absent, not spec.ffn.absent
        self.reaches_back = spec.ffn.reaches_back
        self.mixer = spec.mixer.build(site)
        self.ffn = spec.ffn.build(site)
        if spec.has_mixer_residual:
            self.mixer_residual = self._residual(spec, site, 0)
        if spec.has_ffn_residual:
            self.ffn_residual = self._residual(spec, site, spec.branches - 1)
        self.cross = spec.cross.build(site.d_model) if spec.cross is not None else None
        if spec.cross is not None:
            self.cross_residual = self._residual(spec, site, int(spec.has_mixer_residual))
        self.laurel = spec.laurel.build(spec.norm.build(site.d_model), site.d_model) if spec.laurel else None
        self.gates = spec.gated_norm.build(site.d_model) if spec.gated_norm else nn.ModuleDict()
        self.canon = spec.canon.build(site.d_model) if spec.canon else nn.ModuleDict()
        self.router = DepthRouter(spec.depth_routing, site.d_model) if spec.depth_routing else None
        self._only_mixer_caches = not (self.canon or self.cross is not None or self.reaches_back)
        self.dropout = nn.Dropout(spec.dropout)
        self.depth = StochasticDepth(spec.stochastic_depth, site)
        self._set_initial_scales(spec.norm_placement, site)

    def _residual(self, spec: BlockSpec, site: LayerSite, branch: int) -> ResidualLayer:
        place = replace(site, branch=site.layer * spec.branches + branch, nth=spec.branch_numbers[branch])
        return spec.norm_placement.build(lambda: spec.norm.build(site.d_model), place)

    @property
    def last_residual(self) -> ResidualLayer:
        """Residual connection that produces the block's output."""
        if self.topology == "serial" and self.feeds:
            return self.ffn_residual
        return self.mixer_residual if self.cross is None else self.cross_residual

    def _set_initial_scales(self, placement: Residual, site: LayerSite) -> None:
        """Pass the residual's initial scales to the projections: DeepNorm's β to those of the FFN, of values and of
        outputs; the factor of hyper-connections to output projections only."""
        gain, feeding = placement.init_gain(site), set(self.ffn.modules())
        for module in self.modules():
            if isinstance(module, Linear | ExpertLinear):
                writes = module.roles["weight"] == "output"
                if writes:
                    module.init_factor = placement.init_output_factor
                if writes or module.values or module in feeding:
                    module.init_gain = gain

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        out = self._run(x, step, cache) if self.router is None else self.router(x, step, cache, self._run)
        step.tap("stream", lambda: out)
        return out

    def _run(self, x: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        parts, gates, canon = self._parts(cache), self.gates, self.canon

        def run(name: str, part: nn.Module, h: Tensor) -> Tensor:
            if name in gates:
                h = gates[name](h)
            if name in canon:
                h = canon[name](h, step, parts.get(f"{CANON}.{name}"))
            own = parts.get(name)
            begin_pass(own)
            return self._dropped(part(h, step, own))

        def look(h: Tensor) -> Tensor:
            return self._dropped(cast(nn.Module, self.cross)(h, step, parts.get(CROSS)))

        def mix(h: Tensor) -> Tensor:
            return run(MIXER, self.mixer, h)

        def feed(h: Tensor) -> Tensor:
            return run(FFN, self.ffn, h)

        return self._join(x, mix, look, feed)

    def _dropped(self, update: Tensor) -> Tensor:
        """A branch's update with dropout and stochastic depth. Calling a module that does nothing takes a microsecond,
        which counts in decoding."""
        dropout, depth = self.dropout, self.depth
        if dropout.p and dropout.training:
            update = dropout(update)
        return depth(update) if depth.rate and depth.training else update

    def _parts(self, cache: LayerCache | None) -> Mapping[str, LayerCache]:
        """Caches of the parts, by name; only the mixer's if no other part keeps state."""
        if self._only_mixer_caches:
            return {} if cache is None else {MIXER: cache}
        kept = kept_by(self, cache, PartsCache)
        return {} if kept is None else kept.parts

    def _join(self, x: Tensor, mix: Branch, look: Branch, feed: Branch) -> Tensor:
        if self.topology == "parallel":
            return self.mixer_residual(x, lambda h: mix(h) + feed(h))  # type: ignore[no-any-return]
        if self.topology == "parallel_two_norms":
            update = self.mixer_residual.update(x, mix) + self.ffn_residual.update(x, feed)
            return self.mixer_residual.join(x, update)
        if self.mixes:
            x = self.mixer_residual(x, mix) if self.laurel is None else self._beside(x, mix, self.laurel)
        if self.cross is not None:
            x = self.cross_residual(x, look)
        return self.ffn_residual(x, feed) if self.feeds else x

    def _beside(self, x: Tensor, mix: Branch, laurel: nn.Module) -> Tensor:
        """The mixer's residual plus LAuReL's path, which reads the same input as the mixer."""
        read: list[Tensor] = []

        def noted(h: Tensor) -> Tensor:
            read.append(h)
            return mix(h)

        out: Tensor = laurel(self.mixer_residual(x, noted), read[0])
        return out

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype, memory: int) -> LayerCache:
        """Cache for `batch` rows of up to `capacity` tokens and `memory` encoder tokens: the mixer's cache, or one per
        part if others keep state too. With depth routing each row has its own, since rows route different tokens."""
        if self.router is None:
            return self._new_cache(batch, capacity, dtype, memory)
        return ChunkCache([[self._new_cache(1, capacity, dtype, memory)] for _ in range(batch)], StateCache({}))

    def _new_cache(self, batch: int, capacity: int, dtype: torch.dtype, memory: int) -> LayerCache:
        mixer = self.mixer.new_cache(batch, capacity, dtype)
        convs = {f"{CANON}.{name}": cast(CanonLayer, layer).conv for name, layer in self.canon.items()}
        others: dict[str, LayerCache] = {name: conv.new_cache(batch, dtype) for name, conv in convs.items()}
        near = self.ffn.new_cache(batch, dtype)
        if near is not None:
            others[FFN] = near
        if self.cross is not None:
            others[CROSS] = self.cross.new_cache(batch, memory, dtype)
        return PartsCache({MIXER: mixer, **others}) if others else mixer


# Activation checkpointing of a block (Chen et al. 2016, arXiv:1604.06174): the backward pass recomputes its
# activations, so that each layer keeps only its input, for a third more work.


def recomputed(block: Block, x: Tensor, step: ForwardPass) -> Tensor:
    """`block(x, step)` under activation checkpointing: outputs, gradients and random draws are bitwise the same.

    A pass stores in `step` what later layers share. The recomputation must start from the same state as the first pass,
    or it would skip work, and must store nothing, or losses would count twice. So both run on a copy of `step`, which
    is an output like any other: that of the recomputation is dropped. State that outlives the function, such as a flag
    that tells the two apart, would be a side effect, at which torch.compile breaks the graph.
    """
    found = step.copy()

    def run(x: Tensor) -> tuple[Tensor, ForwardPass]:
        own = found.copy()
        return block(x, own), own

    out, own = checkpoint(run, x, use_reentrant=False)
    step.take(own)
    return out  # type: ignore[no-any-return]
