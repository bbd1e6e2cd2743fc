"""Models of mixers alone, under transformers' `backbone`: Mamba's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation, theirs_by_name
from zoo.hf._keyed import Keyed
from zoo.hf._keys import Keys, read
from zoo.hf._pairs import Pair, same
from zoo.mixers import Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Backbone(Keyed):
    """x + mixer(norm(x)) in every layer, and no FFN."""

    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}

    def mixer(self, config: Config) -> SpecJson:
        act = plain_activation(config, self.activation_key)
        return {**self.mixer_fixed, **read(self.mixer_keys, config), "activation": act}

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "none"}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        """The activation is the mixer's."""
        return {self.activation_key: theirs_by_name(gated=False)[getattr(layer.mixer, "activation", "")]}

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
