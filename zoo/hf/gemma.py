"""Gemma, Gemma 2, VaultGemma, Gemma 3, and Gemma 3n without images and sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import BIAS, Config, ConfigJson, Key, Keys
from zoo.hf._family import Pair, same
from zoo.hf._ffn import plain_activation, theirs_by_name
from zoo.hf._keyed import DOUBLE, LlamaLike
from zoo.hf._layers import (
    FULL,
    SLIDING,
    attention,
    attention_weights,
    dense,
    expect,
    layer_types,
    layered,
    types_of,
    window_config,
)
from zoo.hf._rope import layered_rope_config, rope
from zoo.hf._rope_by_layer import RopeByType, SomeWindows
from zoo.mixers.attention import Attention
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Gemma(LlamaLike):
    """Llama with gains of 1 + w and embeddings times √D. Gemma Team 2024, arXiv:2403.08295."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma",)
    model_fixed: ClassVar[SpecJson] = {"embedding_scale": "sqrt_d_model"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}

    def spec(self, config: Config) -> SpecJson:
        # Each generation reads one of two names; published configs have both.
        config.ignore("hidden_act", "hidden_activation")
        config.only("use_bidirectional_attention", None, False)
        return super().spec(config)


class Gemma2(SomeWindows, Gemma):
    """Gemma with norms before and after each branch, capped scores and logits, and windows on some layers. Gemma Team
    2024, arXiv:2408.00118."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma2",)
    ignored: ClassVar[tuple[str, ...]] = ("sliding_window_size",)  # transformers does not read it
    model_keys: ClassVar[Keys] = {**Gemma.model_keys, "final_logit_softcapping": "final_softcap"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    mixer_keys: ClassVar[Keys] = {
        **Gemma.mixer_keys,
        # An integer: a scale that no integer gives is refused when specs are compared.
        "query_pre_attn_scalar": Key(
            "scale", lambda scalar: scalar**-0.5, lambda scale: max(1, round((scale or 1.0) ** -2))
        ),
        "attn_logit_softcapping": "softcap",
    }
    activation_key: ClassVar[str] = "hidden_activation"
    norm_names: ClassVar[Mapping[str, str]] = DOUBLE


class VaultGemma(Gemma2):
    """Gemma 2 without norms after the branches. VaultGemma Team 2025, arXiv:2510.15001."""

    model_types: ClassVar[tuple[str, ...]] = ("vaultgemma",)
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "pre"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_feedforward_layernorm",
    }


class Gemma3(RopeByType, Gemma2):
    """Gemma 3, the language model without images: Gemma 2 with a QK norm for each head instead of capped scores, and
    other RoPE settings on layers with a window. Gemma Team 2025, arXiv:2503.19786."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3_text",)
    # They only set the default of layer_types.
    ignored: ClassVar[tuple[str, ...]] = ("_sliding_window_pattern", "sliding_window_pattern")
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {
        **Gemma2.mixer_keys,
        # transformers reads it but does not use it.
        "attn_logit_softcapping": Key("softcap", lambda _: None, lambda _: None),
    }


WINDOW, READS = "window", "reads"
FFN = "ffn{}"


class SharedKV(LlamaLike):
    """Base of Gemma 3n and Gemma 4: norms around each branch and on values, windows on some layers with a RoPE of their
    own, last layers that reuse lower layers' keys and values, and per-layer embeddings."""

    buffers: ClassVar[tuple[str, ...]] = ("*inv_freq",)
    preference: ClassVar[int] = 2
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "final_logit_softcapping": "final_softcap"}
    model_fixed: ClassVar[SpecJson] = {"embedding_scale": "sqrt_d_model"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "scale": 1.0}
    activation_key: ClassVar[str] = "hidden_activation"
    norm_names: ClassVar[Mapping[str, str]] = DOUBLE

    def spec(self, config: Config) -> SpecJson:
        inputs = {"per_layer_embeddings": self.inputs(config)}
        return {**super().spec(config), **inputs, **layered(self.kinds(config), self.edits(config))}

    def mixer(self, config: Config) -> SpecJson:
        norm = self.norm(config)
        return {**super().mixer(config), "qk_norm": norm, "v_norm": {**norm, "gain": False}}

    def position(self, config: Config) -> SpecJson:
        return rope(config, self.head_dim(config), FULL)

    def near_head_dim(self, config: Config) -> int:
        """Features of a head of the layers with a window."""
        return self.head_dim(config)

    def inputs(self, config: Config) -> SpecJson | None:
        """The per-layer embeddings."""
        return {
            "features": config["hidden_size_per_layer_input"],
            "activation": plain_activation(config, self.activation_key),
            "vocabulary": config["vocab_size_per_layer_input"],
        }

    def kinds(self, config: Config) -> list[list[str]]:
        """Names of each layer's edits."""
        types = types_of(config)
        own = len(types) - config["num_kv_shared_layers"]
        return [[WINDOW] * (kind == SLIDING) + [READS] * (i >= own) for i, kind in enumerate(types)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        near = {"mixer.window": config["sliding_window"]}
        if SLIDING in types_of(config):
            near["mixer.position"] = rope(config, self.near_head_dim(config), SLIDING)
        reads = {"mixer.reuse_kv": True, "mixer.bias": ["q", "o"] if config["attention_bias"] else False}
        return {WINDOW: near, READS: reads}

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [attention(layer) for layer in spec.layers]
        positions = dict(zip(layer_types(spec), (mixer.position for mixer in mixers), strict=True))
        return {
            **super().config(spec),
            **window_config(spec),
            **layered_rope_config(positions),
            **self.inputs_config(spec),
            "num_kv_shared_layers": sum(mixer.reuse_kv for mixer in mixers),
        }

    def inputs_config(self, spec: ModelSpec) -> ConfigJson:
        """Per-layer embeddings as arguments of the config class."""
        inputs = spec.per_layer_embeddings
        if inputs is None:
            raise UnsupportedError("per_layer_embeddings", "its counterpart has a token table for each layer")
        return {
            "hidden_activation": theirs_by_name(gated=False)[inputs.activation],
            "hidden_size_per_layer_input": inputs.features,
            "vocab_size_per_layer_input": inputs.rows(spec.vocab_size),
        }

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        if spec.per_layer_embeddings is None:
            return
        yield same("per_layer.table.weight", "model.embed_tokens_per_layer.weight")
        yield same("per_layer.project.weight", "model.per_layer_model_projection.weight")
        yield same("per_layer.norm.gain", "model.per_layer_projection_norm.weight")
        for i in range(spec.n_layers):
            theirs = f"model.layers.{i}"
            yield same(f"per_layer.layers.{i}.gate.weight", f"{theirs}.per_layer_input_gate.weight")
            yield same(f"per_layer.layers.{i}.out.weight", f"{theirs}.per_layer_projection.weight")
            yield same(f"per_layer.layers.{i}.norm.gain", f"{theirs}.post_per_layer_input_norm.weight")

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, Attention, "mixer")
        missing = ("k", "v", "k_norm") if mixer.reuse_kv else ("v",) if mixer.keys_as_values else ()
        for pair in attention_weights(mixer, ours, theirs):
            if pair.ours[0].split(".")[-2] not in missing:
                yield pair


class Gemma3n(SharedKV):
    """Gemma 3n: AltUp's streams, LAuReL and per-layer embeddings; the last layers reuse lower layers' keys and values.
    Google 2025, https://ai.google.dev/gemma/docs/gemma-3n."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3n_text",)
    ffn_keys: ClassVar[Keys] = {}

    def spec(self, config: Config) -> SpecJson:
        spec = super().spec(config)
        config.only("altup_correct_scale", True)
        streams, active = config["altup_num_inputs"], config["altup_active_idx"]
        return {**spec, "altup": {"streams": streams, "active": active, "clip": config["altup_coef_clip"]}}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "laurel": {"rank": config["laurel_rank"]}}

    def ffn(self, config: Config) -> SpecJson:
        return {**super().ffn(config), **_sizes(config)[0]}

    def inputs(self, config: Config) -> SpecJson | None:
        return {**(super().inputs(config) or {}), "scaled": True}

    def kinds(self, config: Config) -> list[list[str]]:
        sizes, kinds = _sizes(config), super().kinds(config)
        return [
            kind + [FFN.format(sizes.index(size))] * (size != sizes[0]) for kind, size in zip(kinds, sizes, strict=True)
        ]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        sizes = {
            FFN.format(i): {f"ffn.{key}": value for key, value in size.items()} for i, size in enumerate(_sizes(config))
        }
        return {**super().edits(config), **sizes}

    def config(self, spec: ModelSpec) -> ConfigJson:
        if spec.altup is None:
            raise UnsupportedError("altup", "Gemma 3n needs altup")
        return {
            **super().config(spec),
            "intermediate_size": [dense(layer).width for layer in spec.layers],
            "activation_sparsity_pattern": [dense(layer).sparsity for layer in spec.layers],
            "altup_num_inputs": spec.altup.streams,
            "altup_active_idx": spec.altup.active,
            "altup_coef_clip": spec.altup.clip,
        }

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        if layer.laurel is None:
            raise UnsupportedError("block.laurel", "Gemma 3n needs laurel")
        return {**super().block_config(layer), "laurel_rank": layer.laurel.rank}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        for i in range(spec.altup.streams - 1 if spec.altup else 0):
            yield same(f"altup.enter.{i}.weight", f"model.altup_projections.{i}.weight")
            yield same(f"altup.leave.{i}.weight", f"model.altup_unembed_projections.{i}.weight")
        for i in range(spec.n_layers):
            theirs = f"model.layers.{i}"
            yield same(f"blocks.{i}.laurel.down.weight", f"{theirs}.laurel.linear_left.weight")
            yield same(f"blocks.{i}.laurel.up.weight", f"{theirs}.laurel.linear_right.weight")
            yield same(f"blocks.{i}.laurel.norm.gain", f"{theirs}.laurel.post_laurel_norm.weight")
            yield same(f"altup.layers.{i}.norm.gain", f"{theirs}.altup.router_norm.weight")
            yield same(f"altup.layers.{i}.router.weight", f"{theirs}.altup.modality_router.weight")
            yield same(f"altup.layers.{i}.predict.weight", f"{theirs}.altup.prediction_coefs.weight")
            yield same(f"altup.layers.{i}.correct.weight", f"{theirs}.altup.correction_coefs.weight")
            yield same(f"per_layer.layers.{i}.gain", f"{theirs}.altup.correct_output_scale")


def _sizes(config: Config) -> list[SpecJson]:
    """Per-layer settings of the FFNs."""
    widths, shares = config["intermediate_size"], config["activation_sparsity_pattern"]
    return [{"d_ff": width, "sparsity": float(share)} for width, share in zip(widths, shares, strict=True)]
