"""OLMo to Olmo 3, OLMoE, FlexOlmo and Olmo Hybrid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import BIAS, DELTANET, WIDTH, Config, ConfigJson, Keys, without
from zoo.hf._family import Pair, same
from zoo.hf._keyed import OUTPUT, PRE, LlamaLike
from zoo.hf._layered import LINEAR, ExpertsEverywhere, Hybrid, QwenExperts
from zoo.hf._rope_by_layer import RopeByType
from zoo.hf.qwen import deltanet_weights
from zoo.mixers import Mixer
from zoo.mixers.attention import Attention
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.positions.nope import NoPE
from zoo.settings.edits import SpecJson


class Olmo(LlamaLike):
    """OLMo: Llama with non-parametric LayerNorm, and clipped queries, keys and values. Groeneveld et al. 2024,
    arXiv:2402.00838."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo",)
    norm_keys: ClassVar[Keys] = {}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "eps": 1e-5, "gain": False, "bias": False}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS, "clip_qkv": "clip_qkv"}


class Olmo2(LlamaLike):
    """OLMo 2: x + norm(f(x)), with a QK norm over the full width. OLMo et al. 2025, arXiv:2501.00656."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo2",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "output"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    norm_names: ClassVar[Mapping[str, str]] = OUTPUT


class Olmo3(RopeByType, Olmo2):
    """OLMo 2 with windows, and other RoPE settings, on some layers. Team Olmo 2025, arXiv:2512.13961."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo3",)


class Olmoe(ExpertsEverywhere, QwenExperts):
    """OLMoE: experts in every layer, and a QK norm over the full width. Muennighoff et al. 2024, arXiv:2409.02060."""

    model_types: ClassVar[tuple[str, ...]] = ("olmoe",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}
    expert_keys: ClassVar[Keys] = {
        **without(QwenExperts.expert_keys, "moe_intermediate_size"),
        "intermediate_size": WIDTH,
    }

    def mixer(self, config: Config) -> SpecJson:
        config.only("clip_qkv", None)  # transformers clips after the norm
        return super().mixer(config)


class FlexOlmo(Olmoe):
    """OLMoE with norms after the branches, as in OLMo 2. Shi et al. 2025, arXiv:2507.07024."""

    model_types: ClassVar[tuple[str, ...]] = ("flex_olmo",)
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "output"}
    norm_names: ClassVar[Mapping[str, str]] = OUTPUT


class OlmoHybrid(Hybrid):
    """Gated DeltaNet with pre-norm in most layers, and OLMo 3's attention in the others. Merrill et al. 2026,
    https://huggingface.co/allenai/Olmo-Hybrid-7B."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo_hybrid",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    has_head_dim: ClassVar[bool] = False
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "output"}
    mixer_keys: ClassVar[Keys] = {**Hybrid.mixer_keys, "attention_bias": BIAS}
    state_class: ClassVar[type[Mixer]] = GatedDeltaNet
    state_fixed: ClassVar[SpecJson] = {"kind": "gated_deltanet", "head_norm": {"kind": "rmsnorm", "eps": 1e-5}}
    state_keys: ClassVar[Keys] = {
        **DELTANET,
        "linear_allow_neg_eigval": "negative_eigenvalues",
    }

    def spec(self, config: Config) -> SpecJson:
        # Initial values.
        config.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
        return super().spec(config)

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits = super().edits(config)
        return {**edits, LINEAR: {**edits[LINEAR], "norm_placement": "pre"}}

    def position(self, config: Config) -> SpecJson:
        if (config["rope_parameters"] or {}).get("rope_theta") is not None:
            return super().position(config)
        config.ignore("max_position_embeddings")
        return {"kind": "nope"}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        if isinstance(layer.mixer, Attention) and isinstance(layer.mixer.position, NoPE):
            return {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
        return super().position_config(layer)

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return OUTPUT if layer.norm_placement.kind == "output" else PRE

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if not isinstance(layer.mixer, GatedDeltaNet):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        theirs = theirs.removesuffix("self_attn") + "linear_attn"
        names = {"q": "q", "k": "k", "v": "v", "gate": "g", "strength": "b", "forget": "a"}
        for part, letter in names.items():
            yield same(f"{ours}.{part}.weight", f"{theirs}.{letter}_proj.weight")
        yield from deltanet_weights(layer.mixer, ours, theirs, norm="o_norm", output="o_proj")
