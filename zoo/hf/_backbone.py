"""Models of mixers alone, under transformers' `backbone`: Mamba's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from zoo.hf._family import Family
from zoo.hf._pairs import Pair, same
from zoo.mixers import Mixer
from zoo.spec import ModelSpec


class Backbone(Family):
    """x + mixer(norm(x)) in every layer, and no FFN."""

    @abstractmethod
    def mixer_weights(self, mixer: Mixer, ours: str, theirs: str) -> Iterator[Pair]:
        """Those of one layer's mixer, under these names."""

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "backbone.embeddings.weight")
        yield same("norm.gain", "backbone.norm_f.weight")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"backbone.layers.{i}"
            yield same(f"{ours}.mixer_residual.norm_in.gain", f"{theirs}.norm.weight")
            yield from self.mixer_weights(layer.mixer, f"{ours}.mixer", f"{theirs}.mixer")
