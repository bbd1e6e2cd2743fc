"""Families defined by tables of config keys, and the base of most of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.hf._config import DROPOUT, WIDTH, Config, ConfigJson, Keys, read, write
from zoo.hf._family import Family, Pair, both, same
from zoo.hf._ffn import MODULES, PARTS, SHARED, activation, expert_act, ffn, gated_experts, name_of, require_shared
from zoo.hf._layers import PROJECTIONS, QK_NORMS, attention, attention_weights, dense, expect, linears, norm_weights
from zoo.hf._rope import partial_rope_config, rope, rope_config
from zoo.mixers import Mixer
from zoo.mixers.attention import Attention
from zoo.positions import Position
from zoo.positions.nope import NoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

PRE = {"mixer_residual.norm_in": "input_layernorm", "ffn_residual.norm_in": "post_attention_layernorm"}
OUTPUT = {
    "mixer_residual.norm_out": "post_attention_layernorm",
    "ffn_residual.norm_out": "post_feedforward_layernorm",
}
DOUBLE = {
    "mixer_residual.norm_in": "input_layernorm",
    "ffn_residual.norm_in": "pre_feedforward_layernorm",
    **OUTPUT,
}
"""transformers' names of a layer's norms, keyed by ours: before the branches (Llama), after them (OLMo 2), and both."""


class Keyed(Family):
    """A family with a table of config keys for each part of a spec (`…_keys`), read in both directions. `…_fixed` has
    the settings that all models of the family share. A setting that needs more than a renamed key has a method for each
    direction. Names of modules are attributes, too, and default to Llama's."""

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
    """Further mixer settings of a QK norm, which is like the block's norm; None without a QK norm."""
    fixed_position: ClassVar[SpecJson | None] = None
    """Position scheme of every model of the family; None if configs specify it."""
    qk_norm_key: ClassVar[str | None] = None
    """Flag for the QK norm in configs; None if every model of the family has one, or none has."""
    partial_rotary: ClassVar[bool] = False
    """Whether the model applies `partial_rotary_factor`."""
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "half"
    activation_key: ClassVar[str] = "hidden_act"
    gated: ClassVar[bool] = True
    """Whether the FFN is gated."""
    ffn_keys: ClassVar[Keys] = {"intermediate_size": WIDTH}
    ffn_fixed: ClassVar[SpecJson] = {}
    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    """Class of the mixture of experts in all layers or in some; () without experts."""
    expert_keys: ClassVar[Keys] = {}
    expert_fixed: ClassVar[SpecJson] = {}

    table_name: ClassVar[str] = "model.embed_tokens"
    head_name: ClassVar[str] = "lm_head"
    final_norm_name: ClassVar[str] = "model.norm"
    layers_name: ClassVar[str] = "model.layers"
    """Names of the token table, the head, the last norm, and the list of layers."""
    norm_names: ClassVar[Mapping[str, str]] = PRE
    """transformers' names of a layer's norms, keyed by ours."""
    mixer_name: ClassVar[str] = "self_attn"
    ffn_name: ClassVar[str] = "mlp"
    """Names of a layer's mixer and FFN; empty if their parts belong to the layer itself."""
    mixer_names: ClassVar[Mapping[str, str]] = PROJECTIONS
    qk_norm_names: ClassVar[Mapping[str, str]] = QK_NORMS
    ffn_names: ClassVar[Mapping[str, str]] = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    """transformers' names of their parts, keyed by ours."""
    router_name: ClassVar[str] = "gate"
    balance_name: ClassVar[str] = "gate.e_score_correction_bias"
    shared_name: ClassVar[str] = "shared_experts"
    """Names of an expert layer's router, its load-balancing bias, and its shared experts."""
    expert_modules: ClassVar[Sequence[str]] = MODULES
    """Names of an expert's gate, up and down in version 4 of transformers."""

    def spec(self, config: Config) -> SpecJson:
        return {**read(self.model_keys, config), **self.model_fixed, "block": self.block(config)}

    def block(self, config: Config) -> SpecJson:
        """The base block."""
        parts = {"norm": self.norm(config), "mixer": self.mixer(config), "ffn": self.ffn(config)}
        return {**read(self.block_keys, config), **self.block_fixed, **parts}

    def norm(self, config: Config) -> SpecJson:
        return {**self.norm_fixed, **read(self.norm_keys, config)}

    def mixer(self, config: Config) -> SpecJson:
        mixer = {**self.mixer_fixed, **read(self.mixer_keys, config), "position": self.position(config)}
        if self.qk_norm is None or (self.qk_norm_key is not None and not config[self.qk_norm_key]):
            return mixer
        return {**mixer, "qk_norm": self.norm(config), **self.qk_norm}

    def head_dim(self, config: Config) -> int:
        """Features of a head, ⌊D / H⌋: a remainder belongs to no head."""
        return int(config["hidden_size"] // config["num_attention_heads"])

    def position(self, config: Config) -> SpecJson:
        if self.fixed_position is not None:
            return self.fixed_position
        return rope(config, self.head_dim(config), partial=self.partial_rotary, layout=self.rope_layout)

    def ffn(self, config: Config) -> SpecJson:
        return {**ffn(config, self.activation_key, gated=self.gated), **self.ffn_fixed, **read(self.ffn_keys, config)}

    def experts(self, config: Config) -> SpecJson:
        """The FFN of layers with experts."""
        if SHARED in self.expert_keys:
            require_shared(config)
        act = name_of(**ffn(config, self.activation_key, gated=True))
        return {"activation": act, **self.expert_fixed, **read(self.expert_keys, config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**write(self.model_keys, spec), **self.block_config(self.typical(spec))}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        """The layer whose settings the config gets where it has one value for all layers."""
        return next((layer for layer in spec.layers if isinstance(layer.mixer, self.mixer_class)), spec.layers[0])

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        """Arguments of the config class that follow from a layer."""
        says_normed = {} if self.qk_norm_key is None else {self.qk_norm_key: attention(layer).qk_norm is not None}
        return {
            **write(self.block_keys, layer, "block"),
            **write(self.norm_keys, layer.norm, "norm"),
            **write(self.mixer_keys, expect(layer.mixer, self.mixer_class, "mixer"), "mixer"),
            **self.ffn_config(layer),
            **self.position_config(layer),
            **says_normed,
        }

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        if self.fixed_position is not None:
            return {}
        position: Position = getattr(layer.mixer, "position", NoPE())
        return partial_rope_config(position) if self.partial_rotary else rope_config(position)

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        if isinstance(layer.ffn, self.experts_class):
            return {self.activation_key: expert_act(layer.ffn), **write(self.expert_keys, layer.ffn, "ffn")}
        return {self.activation_key: activation(layer.ffn, gated=self.gated), **write(self.ffn_keys, layer.ffn, "ffn")}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from self.ends(spec)
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"{self.layers_name}.{i}"
            for own, name in self.norms(layer).items():
                yield from norm_weights(layer.norm, f"{ours}.{own}", f"{theirs}.{name}")
            yield from self.mixer_weights(layer, f"{ours}.mixer", f"{theirs}.{self.mixer_name}")
            if not layer.ffn.absent:
                yield from self.ffn_weights(layer, f"{ours}.ffn", f"{theirs}.{self.ffn_name}".rstrip("."))

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        """Embedding, last norm and head."""
        yield same("embedding.weight", f"{self.table_name}.weight")
        if spec.has_final_norm:
            yield from norm_weights(spec.block.norm, "norm", self.final_norm_name)
        if not spec.tie_embeddings:
            yield same("head.weight", f"{self.head_name}.weight")
        if spec.head_bias:
            yield same("head_bias", f"{self.head_name}.bias")

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        """transformers' names of this layer's norms, keyed by ours."""
        return self.norm_names

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return attention_weights(attention(layer), ours, theirs, self.mixer_names, self.qk_norm_names)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.ffn, self.experts_class):
            return self.expert_weights(layer.ffn, ours, theirs)
        ffn = dense(layer)
        names = {part: name for part, name in self.ffn_names.items() if ffn.gated or part != "gate"}
        return linears(ours, theirs, names, names if ffn.bias else ())

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        """Router, load-balancing bias, experts, and shared experts."""
        yield same(f"{ours}.router.weight", f"{theirs}.{self.router_name}.weight")
        if getattr(moe, "bias_rate", None) is not None:
            yield self.balance_weights(moe, f"{ours}.router.selection_bias", f"{theirs}.{self.balance_name}")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts, self.expert_modules)
        if moe.shared_experts:
            yield from self.shared_weights(moe, f"{ours}.shared", f"{theirs}.{self.shared_name}")

    def balance_weights(self, moe: MoE, ours: str, theirs: str) -> Pair:
        return same(ours, theirs)

    def shared_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        for part in PARTS:
            yield from both(f"{ours}.{part}", f"{theirs}.{part}_proj", bias=moe.shared_bias)
        if moe.shared_gate:
            yield same(f"{ours}_gate.weight", f"{theirs}_gate.weight")


class LlamaLike(Keyed):
    """x + attention(norm(x)), x + gated(norm(x)), with RMSNorm and RoPE. Families override what differs."""

    has_head_dim: ClassVar[bool] = True
    """Whether the config class has a `head_dim`."""

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "head_dim": self.head_dim(config)}

    def head_dim(self, config: Config) -> int:
        return int(config.get("head_dim") or super().head_dim(config))

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().block_config(layer)
        return {**arguments, "head_dim": attention(layer).head_dim} if self.has_head_dim else arguments
