"""One block: a mixer and an FFN, serial or parallel, joined to the residual stream by residual connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.block_features import BlockFeatureLayer, Place
from zoo.block_features.depth_routing import DepthRouter
from zoo.block_features.stochastic_depth import StochasticDepth
from zoo.block_spec import BlockSpec
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import ChunkCache, PartsCache, begin_pass
from zoo.caching.states import StateCache
from zoo.init import ExpertLinear, Linear
from zoo.residuals import Branch, ResidualLayer
from zoo.site import ForwardPass, LayerSite

CROSS = "cross"
"""Key of cross-attention in a block's cache; those of mixer and FFN are their places, those of features their names."""


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
        self.dropout = nn.Dropout(spec.dropout)
        self.depth = StochasticDepth(spec.stochastic_depth, site)
        self._drops = bool(spec.dropout or spec.stochastic_depth)  # calling two modules that do nothing slows decoding
        self.features = self._built(spec, site)
        """Modules of the features, in their order. Each is a submodule of the block under its own name."""
        self._acting_after = [part for part in self.features if type(part).after is not BlockFeatureLayer.after]
        self.router = DepthRouter(spec.depth_routing, site.d_model) if spec.depth_routing else None
        keep = any(type(part).new_cache is not BlockFeatureLayer.new_cache for part in self.features)
        self._only_mixer_caches = not (keep or self.cross is not None or self.reaches_back)
        # The residual's initial scales: DeepNorm's β for the projections of the FFN, of values and of outputs; the
        # factor of hyper-connections for output projections only.
        gain, feeding = spec.norm_placement.init_gain(site), set(self.ffn.modules())
        for module in self.modules():
            if isinstance(module, Linear | ExpertLinear):
                writes = module.roles["weight"] == "output"
                if writes:
                    module.init_factor = spec.norm_placement.init_output_factor
                if writes or module.values or module in feeding:
                    module.init_gain = gain

    def _built(self, spec: BlockSpec, site: LayerSite) -> list[BlockFeatureLayer]:
        norm = partial(spec.norm.build, site.d_model)
        built = (feature.build(site.d_model, norm) for feature in spec.features.values())
        parts = sorted((part for part in built if part is not None), key=lambda part: part.order)
        for part in parts:
            if type(part).after is not BlockFeatureLayer.after and spec.topology != "serial":
                raise ValueError(f"{type(part).__name__}.after is not called with topology {spec.topology}")
            if hasattr(self, part.name) or part.name == "router":
                raise ValueError(f"{type(part).__name__}: the block already has an attribute {part.name!r}")
            self.add_module(part.name, part)
        return parts

    def _residual(self, spec: BlockSpec, site: LayerSite, branch: int) -> ResidualLayer:
        place = replace(site, branch=site.layer * spec.branches + branch, nth=spec.branch_numbers[branch])
        return spec.norm_placement.build(lambda: spec.norm.build(site.d_model), place)

    @property
    def last_residual(self) -> ResidualLayer:
        """Residual connection that produces the block's output."""
        if self.topology == "serial" and self.feeds:
            return self.ffn_residual
        return self.mixer_residual if self.cross is None else self.cross_residual

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        out = self._run(x, step, cache) if self.router is None else self.router(x, step, cache, self._run)
        step.tap("stream", lambda: out)
        return out

    def _run(self, x: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        features, cross = self.features, self.cross
        parts: Mapping[str, LayerCache] = {}  # caches of the parts, by name
        if self._only_mixer_caches:
            parts = {} if cache is None else {"mixer": cache}
        elif (kept := kept_by(self, cache, PartsCache)) is not None:
            parts = kept.parts

        def run(name: Place, part: nn.Module, h: Tensor) -> Tensor:
            for feature in features:
                h = feature.before(name, h, step, parts.get(feature.name))
            own = parts.get(name)
            begin_pass(own)
            return self._dropped(part(h, step, own))

        mix, feed = partial(run, "mixer", self.mixer), partial(run, "ffn", self.ffn)
        if self.topology == "parallel":
            return self.mixer_residual(x, lambda h: mix(h) + feed(h))  # type: ignore[no-any-return]
        if self.topology == "parallel_two_norms":
            update = self.mixer_residual.update(x, mix) + self.ffn_residual.update(x, feed)
            return self.mixer_residual.join(x, update)
        if self.mixes:
            x = self._joined("mixer", self.mixer_residual, x, mix)
        if cross is not None:
            x = self.cross_residual(x, lambda h: self._dropped(cross(h, step, parts.get(CROSS))))
        return self._joined("ffn", self.ffn_residual, x, feed) if self.feeds else x

    def _dropped(self, update: Tensor) -> Tensor:
        """A branch's update with dropout and stochastic depth."""
        return self.depth(self.dropout(update)) if self._drops else update

    def _joined(self, place: Place, residual: ResidualLayer, x: Tensor, branch: Branch) -> Tensor:
        """The stream after a branch, and after the features that act there and read what the branch reads."""
        if not self._acting_after:
            return residual(x, branch)  # type: ignore[no-any-return]
        read: list[Tensor] = []

        def noted(h: Tensor) -> Tensor:
            read.append(h)
            return branch(h)

        x = residual(x, noted)
        for part in self._acting_after:
            x = part.after(place, x, read[0])
        return x

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype, memory: int) -> LayerCache:
        """Cache for `batch` rows of up to `capacity` tokens and `memory` encoder tokens: the mixer's cache, or one per
        part if others keep state too. With depth routing each row has its own, since rows route different tokens."""
        if self.router is None:
            return self._new_cache(batch, capacity, dtype, memory)
        return ChunkCache([[self._new_cache(1, capacity, dtype, memory)] for _ in range(batch)], StateCache({}))

    def _new_cache(self, batch: int, capacity: int, dtype: torch.dtype, memory: int) -> LayerCache:
        mixer = self.mixer.new_cache(batch, capacity, dtype)
        made = {part.name: part.new_cache(batch, dtype) for part in self.features}
        made["ffn"] = self.ffn.new_cache(batch, dtype)
        others = {name: each for name, each in made.items() if each is not None}
        if self.cross is not None:
            others[CROSS] = self.cross.new_cache(batch, memory, dtype)
        return PartsCache({"mixer": mixer, **others}) if others else mixer


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
