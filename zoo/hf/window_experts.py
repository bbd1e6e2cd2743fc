"""Models with windows and experts: Trinity, dots.llm1, gpt-oss, Kolibri 1, Laguna, Mellum 2, MiMo-V2-Flash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import BIAS, QKV, QKV_BIAS, Config, ConfigJson, Key, Keys, read, without, write
from zoo.hf._family import Pair, both, same, transposed
from zoo.hf._ffn import BESIDE_SHARED, EXPERT_SIZES, SHARED, SHARED_WIDTH, alternating, balance_loss
from zoo.hf._keyed import PRE, LlamaLike
from zoo.hf._layered import ExpertsEverywhere, FineExperts, Listed, ListedExperts, QwenExperts
from zoo.hf._layers import SLIDING, attention, expect, layer_types, types_of, window_of
from zoo.hf._rope import FRACTION
from zoo.hf._rope_by_layer import NearByType, NearRoPE, SomeWindows
from zoo.hf.glm import OUTPUT_NORMS
from zoo.hf.mistral import Mixtral
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

ALL_BIASES = Key("bias", lambda biased: [*QKV, "o"] if biased else False, bool)
WINDOW = "window"
HEADS = "num_attention_heads_per_layer"
FEATURE, HEAD = "per-feature", "per-head"


class Afmoe(NearRoPE, FineExperts):
    """Arcee's Trinity: norms before and after each branch, gated attention with a QK norm for each head, windows with
    RoPE, full attention without positions, sigmoid experts after some dense layers. Arcee AI 2026,
    arXiv:2602.17004."""

    model_types: ClassVar[tuple[str, ...]] = ("afmoe",)
    ignored: ClassVar[tuple[str, ...]] = ("global_attn_every_n_layers",)  # it only sets the default of layer_types
    qk_norm: ClassVar[SpecJson | None] = {}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": ALL_BIASES}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "gate": "feature"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "mixer_residual.norm_out": "post_attention_layernorm",
        "ffn_residual.norm_in": "pre_mlp_layernorm",
        "ffn_residual.norm_out": "post_mlp_layernorm",
    }
    router_name: ClassVar[str] = "router.gate"
    balance_name: ClassVar[str] = "expert_bias"
    dense_key: ClassVar[str] = "num_dense_layers"
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "num_shared_experts": "shared_experts",
        "route_scale": Key("scale", float),
    }

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), "embedding_scale": "sqrt_d_model" if config["mup_enabled"] else 1.0}

    def config(self, spec: ModelSpec) -> ConfigJson:
        factor = spec.embedding_factor
        if factor not in (1.0, spec.d_model**0.5):
            raise UnsupportedError("embedding_scale", f"{factor} cannot be converted, only 1 and √d_model")
        return {**super().config(spec), "mup_enabled": factor != 1}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        yield same(f"{ours}.gate.project.weight", f"{theirs}.gate_proj.weight")


class Dots1(FineExperts):
    """dots.llm1: Qwen 3's attention, windows on some layers, DeepSeek-V3's experts after some dense layers. Huo et al.
    2025, arXiv:2506.05767."""

    model_types: ClassVar[tuple[str, ...]] = ("dots1",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": BIAS}
    scoring: ClassVar[tuple[str, ...]] = ("sigmoid", "noaux_tc")

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("max_window_layers")  # it only sets the default of layer_types
        return [[WINDOW] * (kind == SLIDING) for kind in types_of(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), WINDOW: {"mixer.window": config["sliding_window"]}}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), "layer_types": layer_types(spec), "sliding_window": window_of(spec)}


class Kolibri(ExpertsEverywhere, NearRoPE, FineExperts):
    """Kolibri 1: norms before and after each branch, a QK norm for each head, windows with RoPE, full attention without
    positions, experts with a bias on the router's logits. Aleph Alpha 2026,
    https://huggingface.co/Aleph-Alpha/Kolibri-1."""

    model_types: ClassVar[tuple[str, ...]] = ("kolibri1",)
    qk_norm: ClassVar[SpecJson | None] = {}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    norm_names: ClassVar[Mapping[str, str]] = PRE | OUTPUT_NORMS
    expert_fixed: ClassVar[SpecJson] = {**FineExperts.expert_fixed, "bias_on": "logit", "shared_experts": 1}
    expert_keys: ClassVar[Keys] = BESIDE_SHARED

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)


class Laguna(NearByType, ListedExperts):
    """Laguna: windows on some layers, with another RoPE and number of heads, softplus gates on the heads' outputs,
    sigmoid experts. Poolside 2026, https://huggingface.co/poolside/Laguna-XS.2."""

    model_types: ClassVar[tuple[str, ...]] = ("laguna",)
    # A number that follows from a list, and a weight of a loss in training.
    ignored: ClassVar[tuple[str, ...]] = ("num_attention_heads", "router_aux_loss_coef")
    qk_norm: ClassVar[SpecJson | None] = {}
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {
        **without(ListedExperts.mixer_keys, "num_attention_heads"),
        "attention_bias": ALL_BIASES,
    }
    expert_fixed: ClassVar[SpecJson] = {**ListedExperts.expert_fixed, "shared_experts": 1}
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "moe_routed_scaling_factor": Key("scale", float),
        "moe_router_logit_softcapping": Key("router_softcap", lambda cap: cap or None, lambda cap: cap or 0.0),
        SHARED: SHARED_WIDTH,
    }

    def spec(self, config: Config) -> SpecJson:
        config.only("moe_apply_router_weight_on_input", False)
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        kinds = zip(super().mixer_kinds(config), config[HEADS], strict=True)
        return [[*kind, f"heads_{heads}"] for kind, heads in kinds]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), **{f"heads_{n}": {"mixer.heads": n} for n in config[HEADS]}}

    def mixer(self, config: Config) -> SpecJson:
        per_head = config["gating"] in (True, HEAD)
        if not config["gating"]:
            raise UnsupportedError("gating", f"must not be {config['gating']!r}: transformers always applies a gate")
        gate = "head_softplus" if per_head else "feature_softplus"
        return {**super().mixer(config), "gate": gate, "heads": config[HEADS][0]}

    def head_dim(self, config: Config) -> int:
        return int(config["head_dim"])

    def config(self, spec: ModelSpec) -> ConfigJson:
        heads = [attention(layer).heads for layer in spec.layers]
        return {**super().config(spec), HEADS: heads, "num_attention_heads": heads[0]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        per_head = attention(layer).gate == "head_softplus"
        return {**super().block_config(layer), "gating": HEAD if per_head else FEATURE}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        yield same(f"{ours}.gate.project.weight", f"{theirs}.g_proj.weight")


class Mellum(NearByType, Listed, QwenExperts):
    """Mellum 2: Qwen 3 with experts, and windows with other RoPE settings on some layers. JetBrains 2026,
    https://huggingface.co/JetBrains/Mellum2-12B-A2.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("mellum",)
    qk_norm: ClassVar[SpecJson | None] = {}
    preference: ClassVar[int] = 3
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}

    def spec(self, config: Config) -> SpecJson:
        # Multi-token prediction.
        config.ignore("num_mtp_layers", "num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types")
        return super().spec(config)


class MiMoV2(NearByType, ListedExperts):
    """MiMo-V2-Flash: windows with sinks and twice the kv heads on most layers, scaled values narrower than keys,
    sigmoid experts. Xiaomi 2026, arXiv:2601.02780."""

    model_types: ClassVar[tuple[str, ...]] = ("mimo_v2_flash",)
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {
        **ListedExperts.mixer_keys,
        "v_head_dim": Key("v_dim", resolved="value_features"),
        "attention_bias": QKV_BIAS,
        "attention_value_scale": Key("value_scale", lambda scale: 1.0 if scale is None else float(scale)),
    }
    keeps_empty: ClassVar[bool] = False
    expert_fixed: ClassVar[SpecJson] = {**ListedExperts.expert_fixed, "shared_experts": 0}
    expert_keys: ClassVar[Keys] = without(ListedExperts.expert_keys, "n_shared_experts")

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits = super().edits(config)
        edits[SLIDING] |= {"mixer.kv_heads": 2 * config["num_key_value_heads"], "mixer.sinks": True}
        return edits

    def position_of(self, config: Config, kind: str) -> SpecJson:
        if "partial_rotary_factor" not in config["rope_parameters"].get(kind, {"partial_rotary_factor": 1.0}):
            raise UnsupportedError(FRACTION, f"missing for {kind}: set it, since transformers would use 0.334")
        return super().position_of(config, kind)

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixer, arguments = attention(self.typical(spec)), super().config(spec)
        for parameters in arguments["rope_parameters"].values():
            parameters.setdefault("partial_rotary_factor", 1.0)
        kv_heads = mixer.sizes()[1]
        return {**arguments, "num_key_value_heads": kv_heads if mixer.window is None else kv_heads // 2}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if attention(layer).window is None), spec.layers[0])


class GptOss(SomeWindows):
    """gpt-oss: Llama with sinks, windows on some layers, experts with clamped SwiGLU. OpenAI 2025, arXiv:2508.10925."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_oss",)
    # transformers does not read them.
    ignored: ClassVar[tuple[str, ...]] = ("experts_per_token", "initial_context_length")
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "sinks": True}
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("hidden_act")  # the experts have their own
        return {
            "kind": "topk_moe",
            "activation": "clamped_swiglu",
            "swiglu_alpha": float(config.get("swiglu_alpha", 1.702)),
            "swiglu_limit": float(config.get("swiglu_limit", 7.0)),
            "bias": True,
            "router_bias": True,
            "balance_loss": balance_loss(config),
            **read(self.expert_keys, config),
        }

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        clamp = {"swiglu_alpha": experts.swiglu_alpha, "swiglu_limit": experts.swiglu_limit}
        sizes = write(self.expert_keys, experts, "ffn")
        return {**sizes, **{key: value for key, value in clamp.items() if value is not None}}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield from both(f"{ours}.router", f"{theirs}.router", bias=True)
        ours, theirs = f"{ours}.experts", f"{theirs}.experts"
        yield alternating([f"{ours}.gate.weight", f"{ours}.up.weight"], f"{theirs}.gate_up_proj")
        yield alternating([f"{ours}.gate.bias", f"{ours}.up.bias"], f"{theirs}.gate_up_proj_bias")
        yield transposed(same(f"{ours}.down.weight", f"{theirs}.down_proj"))
        yield same(f"{ours}.down.bias", f"{theirs}.down_proj_bias")
