"""Families whose layers differ by named edits of a base block."""

from __future__ import annotations

from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation
from zoo.hf._keyed import LlamaLike
from zoo.hf._keys import Keys, read, write
from zoo.hf._layers import FULL, layered, types_of
from zoo.mixers import Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

EXPERTS, LINEAR = "experts", "linear_attention"
DENSE, SPARSE = "dense", "sparse"


class Layered(LlamaLike):
    """Llama's block, edited layer by layer. Families define the edits of each layer."""

    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        kinds = zip(self.mixer_kinds(config), self.sparse(config), strict=True)
        names = [[*mixer, *[EXPERTS] * sparse] for mixer, sparse in kinds]
        return {**super().spec(config), **layered(names, self.edits(config))}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        """Names of the `edits` of each layer's mixer."""
        return [[] for _ in range(config["num_hidden_layers"])]

    def sparse(self, config: Config) -> list[bool]:
        """For each layer, whether it has experts, by the edit `EXPERTS`."""
        return [False] * int(config["num_hidden_layers"])

    def edits(self, config: Config) -> dict[str, SpecJson]:
        """Edits of the base block, keyed by name."""
        return {EXPERTS: {"ffn": self.experts(config)}} if self.expert_keys else {}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        for layer in spec.layers:
            arguments |= self.ffn_config(layer)
        return {**arguments, **self.sparse_config([isinstance(layer.ffn, self.experts_class) for layer in spec.layers])}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        """Arguments of the config class that say which layers have experts."""
        return {}


class Listed(Layered):
    """Family whose configs list the layers with experts."""

    def sparse(self, config: Config) -> list[bool]:
        return [kind == SPARSE for kind in config["mlp_layer_types"]]

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"mlp_layer_types": [SPARSE if there else DENSE for there in sparse]}


class NoExperts(Layered):
    """Mixin that removes the experts of the families after it in the bases."""

    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    expert_keys: ClassVar[Keys] = {}

    def sparse(self, config: Config) -> list[bool]:
        return Layered.sparse(self, config)

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {}


class ExpertsEverywhere(Layered):
    """Mixin for experts in every layer, which configs do not state."""

    def sparse(self, config: Config) -> list[bool]:
        return [True] * int(config["num_hidden_layers"])

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        if not all(sparse):
            raise UnsupportedError("ffn", "its counterpart has experts in every layer")
        return {}


class Hybrid(Layered):
    """Layers with a state among layers of attention, as listed in `layer_types`."""

    state_class: ClassVar[type[Mixer]]
    state_keys: ClassVar[Keys]
    state_fixed: ClassVar[SpecJson]

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[LINEAR] * (kind == LINEAR) for kind in types_of(config, LINEAR)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), LINEAR: {"mixer": self.state(config)}}

    def state(self, config: Config) -> SpecJson:
        """The mixer of layers with a state."""
        act = plain_activation(config, self.activation_key)
        return {**self.state_fixed, **read(self.state_keys, config), "activation": act}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        for layer in spec.layers:
            if isinstance(layer.mixer, self.state_class):
                arguments |= self.state_config(layer.mixer)
        types = [FULL if isinstance(layer.mixer, self.mixer_class) else LINEAR for layer in spec.layers]
        return {**arguments, "layer_types": types}

    def state_config(self, mixer: Mixer) -> ConfigJson:
        """Arguments of the config class that follow from a layer with a state."""
        return write(self.state_keys, mixer, "mixer")
