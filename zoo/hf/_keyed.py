"""Families given by tables of keys."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act
from zoo.hf._family import Family
from zoo.hf._ffn import activation, ffn, name_of
from zoo.hf._keys import DROPOUT, WIDTH, Keys, read, write
from zoo.hf._rope import partial_rope_config, rope, rope_config
from zoo.mixers import Mixer
from zoo.mixers.attention import Attention
from zoo.positions import Position
from zoo.positions.nope import NoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Keyed(Family):
    """A family whose keys stand in a table for each part of a spec, which is read in both directions. Beside a table
    stands what a model of the family always has; what takes more than a name has a method for each direction."""

    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
    }
    model_fixed: ClassVar[SpecJson] = {}
    block_keys: ClassVar[Keys] = {}
    block_fixed: ClassVar[SpecJson] = {}
    norm_keys: ClassVar[Keys] = {"rms_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm"}
    mixer_class: ClassVar[type[Mixer]] = Attention
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "attention_dropout": DROPOUT,
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention"}
    qk_norm: ClassVar[SpecJson | None] = None
    """Settings of a norm of queries and keys that is like the block's; None without one."""
    partial_rotary: ClassVar[bool] = False
    """Whether the model heeds `partial_rotary_factor`."""
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "half"
    activation_key: ClassVar[str] = "hidden_act"
    gated: ClassVar[bool] = True
    """Whether the FFN is."""
    ffn_keys: ClassVar[Keys] = {"intermediate_size": WIDTH}
    ffn_fixed: ClassVar[SpecJson] = {}
    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    """Mixture of experts in all layers or in some, if any."""
    expert_keys: ClassVar[Keys] = {}
    expert_fixed: ClassVar[SpecJson] = {}

    def spec(self, config: Config) -> SpecJson:
        return {**read(self.model_keys, config), **self.model_fixed, "block": self.block(config)}

    def block(self, config: Config) -> SpecJson:
        """The base block."""
        parts = {"norm": self.norm(config), "mixer": self.mixer(config), "ffn": self.ffn(config)}
        return {**read(self.block_keys, config), **self.block_fixed, **parts}

    def norm(self, config: Config) -> SpecJson:
        return {**self.norm_fixed, **read(self.norm_keys, config)}

    def mixer(self, config: Config) -> SpecJson:
        normed = {} if self.qk_norm is None else {"qk_norm": self.norm(config), **self.qk_norm}
        return {**self.mixer_fixed, **read(self.mixer_keys, config), "position": self.position(config), **normed}

    def head_dim(self, config: Config) -> int:
        """Features of a head: what is left of D / H is in no head."""
        return int(config["hidden_size"] // config["num_attention_heads"])

    def position(self, config: Config) -> SpecJson:
        return rope(config, self.head_dim(config), partial=self.partial_rotary, layout=self.rope_layout)

    def ffn(self, config: Config) -> SpecJson:
        return {**ffn(config, self.activation_key, gated=self.gated), **self.ffn_fixed, **read(self.ffn_keys, config)}

    def experts(self, config: Config) -> SpecJson:
        """The FFN of layers with experts."""
        act = name_of(**ffn(config, self.activation_key, gated=True))
        return {"activation": act, **self.expert_fixed, **read(self.expert_keys, config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**write(self.model_keys, spec), **self.block_config(self.typical(spec))}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        """The layer that tells what the config says once for all layers."""
        return next((layer for layer in spec.layers if isinstance(layer.mixer, self.mixer_class)), spec.layers[0])

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        """Arguments of the config class that a layer tells."""
        return {
            **write(self.block_keys, layer, "block"),
            **write(self.norm_keys, layer.norm, "norm"),
            **write(self.mixer_keys, expect(layer.mixer, self.mixer_class, "mixer"), "mixer"),
            **self.ffn_config(layer),
            **self.position_config(layer),
        }

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        position: Position = getattr(layer.mixer, "position", NoPE())
        return partial_rope_config(position) if self.partial_rotary else rope_config(position)

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        if isinstance(layer.ffn, self.experts_class):
            return {self.activation_key: expert_act(layer.ffn), **write(self.expert_keys, layer.ffn, "ffn")}
        return {self.activation_key: activation(layer.ffn, gated=self.gated), **write(self.ffn_keys, layer.ffn, "ffn")}
