"""Hybrids: Bamba, the base of those with Mamba-2, Falcon-H1, and Jamba, which has Mamba."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import BIAS, CONV, WIDTH, Config, ConfigJson, Key, Keys, read, write
from zoo.hf._family import Pair, same
from zoo.hf._ffn import plain_activation
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import LINEAR, Hybrid, QwenExperts
from zoo.hf._layers import FULL, attention_weights, expect, inverse
from zoo.hf.mamba import limits, limits_config, mamba2_weights, mamba_weights
from zoo.mixers import Mixer
from zoo.mixers.attention import Attention
from zoo.mixers.mamba import Mamba
from zoo.mixers.mamba2 import Mamba2
from zoo.mixers.parallel import Parallel
from zoo.settings.axis import number
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Mamba2Hybrid(Hybrid):
    """Hybrid with Mamba-2 in the layers that are not attention."""

    has_head_dim: ClassVar[bool] = False
    state_class: ClassVar[type[Mixer]] = Mamba2
    state_fixed: ClassVar[SpecJson] = {"kind": "mamba2"}
    state_keys: ClassVar[Keys] = {
        "mamba_n_heads": "heads",
        "mamba_d_head": Key("head_dim", resolved="features"),
        "mamba_d_state": "state",
        "mamba_n_groups": "groups",
        "mamba_d_conv": CONV,
        "mamba_conv_bias": "conv_bias",
        "mamba_proj_bias": "bias",
        "mamba_chunk_size": "chunk",
    }

    def state(self, config: Config) -> SpecJson:
        config.ignore("mamba_expand")  # it follows from the heads
        return {**super().state(config), "head_norm": self.norm(config), **limits(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        mixer = next((layer.mixer for layer in spec.layers if isinstance(layer.mixer, Mamba2)), None)
        return arguments if mixer is None else {**arguments, "mamba_expand": mixer.widths[0] // spec.d_model}

    def state_config(self, mixer: Mixer) -> ConfigJson:
        return {**super().state_config(mixer), **limits_config(expect(mixer, Mamba2, "mixer"))}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, Mamba2):
            return mamba2_weights(layer.mixer, ours, theirs.removesuffix("self_attn") + "mamba")
        return super().mixer_weights(layer, ours, theirs)


class Bamba(Mamba2Hybrid):
    """Mamba-2 in most layers, attention with partial RoPE in the others, and dense FFNs. IBM, Princeton and UIUC 2024,
    https://huggingface.co/ibm-fms/Bamba-9B."""

    model_types: ClassVar[tuple[str, ...]] = ("bamba",)
    ignored: ClassVar[tuple[str, ...]] = ("num_logits_to_keep",)
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {**Mamba2Hybrid.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**Mamba2Hybrid.ffn_keys, "mlp_bias": "bias"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_ff_layernorm",
    }
    ffn_name: ClassVar[str] = "feed_forward"

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), "z_loss": float(config["z_loss_coefficient"])}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        attends = config["attn_layer_indices"] or ()
        return [[LINEAR] * (i not in attends) for i in range(config["num_hidden_layers"])]

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        types = arguments.pop("layer_types")
        indices = [i for i, kind in enumerate(types) if kind == FULL]
        return {**arguments, "attn_layer_indices": indices, "z_loss_coefficient": spec.z_loss}


def _scales(factors: Iterable[float]) -> tuple[float, ...] | None:
    """A spec's `scales`; None if all are 1."""
    found = tuple(map(float, factors))
    return None if set(found) == {1.0} else found


def _factors(count: int) -> Key:
    return Key("scales", _scales, lambda scales: list(scales or [1.0] * count))


class FalconH1(LlamaLike):
    """Falcon-H1: attention and Mamba-2 side by side in every block, with factors on their projections, the FFN's, the
    embeddings and the logits. Zuo et al. 2025, arXiv:2507.22448."""

    model_types: ClassVar[tuple[str, ...]] = ("falcon_h1",)
    # Widths that follow from Mamba's heads, and an argument of `generate`.
    ignored: ClassVar[tuple[str, ...]] = ("mamba_d_ssm", "mamba_expand", "num_logits_to_keep")
    final_norm_name: ClassVar[str] = Bamba.final_norm_name
    norm_names: ClassVar[Mapping[str, str]] = Bamba.norm_names
    ffn_name: ClassVar[str] = Bamba.ffn_name
    model_keys: ClassVar[Keys] = {
        **LlamaLike.model_keys,
        "embedding_multiplier": Key("embedding_scale", float, resolved="embedding_factor"),
        "lm_head_multiplier": Key("logit_scale", float),
    }
    mixer_keys: ClassVar[Keys] = Bamba.mixer_keys
    state_keys: ClassVar[Keys] = {**Mamba2Hybrid.state_keys, "projectors_bias": "bias", "ssm_multipliers": _factors(5)}
    sum_keys: ClassVar[Keys] = {"attention_out_multiplier": "attention_scale", "ssm_out_multiplier": "state_scale"}
    ffn_keys: ClassVar[Keys] = {**Bamba.ffn_keys, "mlp_multipliers": _factors(2)}

    def mixer(self, config: Config) -> SpecJson:
        attention, state, both = super().mixer(config), self._state(config), read(self.sum_keys, config)
        before = _without_bias(config, "attention_in_multiplier", "attention_bias")
        scale = config["key_multiplier"] * before**2 * attention["head_dim"] ** -0.5
        both["attention_scale"] *= before
        return {"kind": "parallel", "attention": {**attention, "scale": scale}, "state": state, **both}

    def _state(self, config: Config) -> SpecJson:
        config.only("projectors_bias", config["mamba_proj_bias"])
        config.only("mamba_norm_before_gate", False, *([] if config["mamba_rms_norm"] else [True]))
        own = read(self.state_keys, config)
        before = _without_bias(config, "ssm_in_multiplier", "mamba_proj_bias")
        return {
            **Mamba2Hybrid.state_fixed,
            **own,
            "scales": _scales(before * scale for scale in own["scales"] or [1.0] * 5),
            "activation": plain_activation(config, self.activation_key),
            "head_norm": self.norm(config) if config["mamba_rms_norm"] else "none",
            **limits(config),
        }

    def ffn(self, config: Config) -> SpecJson:
        ffn = super().ffn(config)
        if ffn["bias"] and (ffn["scales"] or (1.0, 1.0))[1] != 1:
            raise UnsupportedError("mlp_bias", "must be false with an mlp_multiplier on the output")
        return ffn

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = expect(layer.mixer, Parallel, "mixer")
        state = expect(mixer.state, Mamba2, "mixer.state")
        dim, scale = mixer.attention.sizes()[2], number(mixer.attention.scale)
        return {
            **super().block_config(layer.model_copy(update={"mixer": mixer.attention})),
            **write(self.sum_keys, mixer, "mixer"),
            "key_multiplier": inverse(lambda factor: factor * dim**-0.5, scale / dim**-0.5, scale),
            **write(self.state_keys, state, "mixer.state"),
            **limits_config(state),
            "mamba_d_ssm": state.widths[0],
            "mamba_rms_norm": state.head_norm.normalises,
            "mamba_norm_before_gate": False,
        }

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, Parallel, "mixer")
        yield from attention_weights(mixer.attention, f"{ours}.attention", theirs)
        state = expect(mixer.state, Mamba2, "mixer.state")
        yield from mamba2_weights(state, f"{ours}.state", theirs.removesuffix("self_attn") + "mamba")


def _without_bias(config: Config, key: str, bias: str) -> float:
    """A factor on a projection's input. Raises UnsupportedError for one other than 1 beside a bias."""
    if config[key] != 1 and config[bias]:
        raise UnsupportedError(key, f"{config[key]!r} cannot be converted with {bias}, only 1")
    return float(config[key])


MAMBA = "mamba"
MAMBA_KEYS: Keys = {
    "mamba_d_state": "state",
    "mamba_dt_rank": "rank",
    "mamba_d_conv": "conv",
    "mamba_conv_bias": "conv_bias",
    "mamba_proj_bias": "bias",
}


class Jamba(QwenExperts):
    """Mamba in most layers and attention without positions in the others, experts in every second layer. Lieber et al.
    2024, arXiv:2403.19887."""

    model_types: ClassVar[tuple[str, ...]] = ("jamba",)
    fixed_position: ClassVar[SpecJson | None] = {"kind": "nope"}
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    has_head_dim: ClassVar[bool] = False
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe", "softmax_over": "all"}
    expert_keys: ClassVar[Keys] = {
        "intermediate_size": WIDTH,
        "num_experts": "experts",
        "num_experts_per_tok": "top_k",
    }
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_ff_layernorm",
    }
    ffn_name: ClassVar[str] = "feed_forward"
    router_name: ClassVar[str] = "router"

    def spec(self, config: Config) -> SpecJson:
        # Implementations, and a key of published configs that no model reads.
        config.ignore("use_mamba_kernels", "use_mambapy", "use_associative_scan", "max_position_embeddings")
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        period, offset = config["attn_layer_period"], config["attn_layer_offset"]
        return [[MAMBA] * (i % period != offset) for i in range(config["num_hidden_layers"])]

    def sparse(self, config: Config) -> list[bool]:
        period, offset = config["expert_layer_period"], config["expert_layer_offset"]
        return [config["num_experts"] > 1 and i % period == offset for i in range(config["num_hidden_layers"])]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits, inner = super().edits(config), config["mamba_expand"] * config["hidden_size"]
        activation = plain_activation(config, "hidden_act")
        own = {"activation": activation, "inner": inner, "part_norm": self.norm(config)}
        return {**edits, MAMBA: {"mixer": {"kind": "mamba", **read(MAMBA_KEYS, config), **own}}}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments, mixers = super().config(spec), [layer.mixer for layer in spec.layers]
        for mixer in mixers:
            if isinstance(mixer, Mamba):
                inner, rank = mixer.sizes()
                sizes = {"mamba_expand": inner // spec.d_model, "mamba_dt_rank": rank}
                arguments |= {**write(MAMBA_KEYS, mixer, "mixer"), **sizes}
        return {**arguments, **_every("attn", [isinstance(mixer, Attention) for mixer in mixers])}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {**_every("expert", sparse), **({} if any(sparse) else {"num_experts": 1})}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if not isinstance(layer.mixer, Mamba):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        theirs = theirs.removesuffix("self_attn") + "mamba"
        yield from mamba_weights(layer.mixer, ours, theirs)
        for i, name in enumerate(("dt", "b", "c")):
            yield same(f"{ours}.part_norms.{i}.gain", f"{theirs}.{name}_layernorm.weight")


def _every(name: str, there: list[bool]) -> dict[str, int]:
    """Period and offset of the layers marked in `there`: i mod period = offset. Raises UnsupportedError."""
    if not any(there):
        return {f"{name}_layer_period": len(there) + 1, f"{name}_layer_offset": len(there)}
    offset = there.index(True)
    period = there.index(True, offset + 1) - offset if there.count(True) > 1 else len(there)
    if offset >= period:
        raise UnsupportedError(
            "pattern",
            f"layers from {offset} on, every {period}, have no counterpart: the first must be below the period",
        )
    return {f"{name}_layer_period": period, f"{name}_layer_offset": offset}
