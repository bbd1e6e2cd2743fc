"""DeepSeek V2 to V3.2, and others with its latent attention: GLM-4.7-Flash, GLM-5, Youtu-LLM, MiniCPM 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson, Key, Keys, without
from zoo.hf._family import Pair, both, fused_layers, layernorm, same
from zoo.hf._keyed import Keyed
from zoo.hf._layered import FineExperts, ListedExperts, NoExperts
from zoo.hf._layers import expect, inverse
from zoo.hf._rope import rope, rope_config
from zoo.mixers import Mixer
from zoo.mixers.dsa import DeepSeekSparseAttention
from zoo.mixers.mla import MLA
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class DeepSeekV3(FineExperts):
    """Latent attention, and experts after some dense layers. DeepSeek-AI 2024, arXiv:2412.19437."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v3",)
    ignored: ClassVar[tuple[str, ...]] = ("qk_head_dim",)  # it follows from others

    has_head_dim: ClassVar[bool] = False
    mixer_class: ClassVar[type[Mixer]] = MLA
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "num_key_value_heads": "heads",
        "q_lora_rank": "q_rank",
        "kv_lora_rank": "kv_rank",
        "qk_nope_head_dim": "nope_dim",
        "qk_rope_head_dim": "rope_dim",
        "v_head_dim": "v_dim",
        "attention_bias": "bias",
        "attention_dropout": Key("dropout", lambda rate: float(rate or 0.0)),
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "mla", "latent_norm": {"kind": "rmsnorm", "eps": 1e-6}}

    def mixer(self, config: Config) -> SpecJson:
        config.only("num_key_value_heads", config["num_attention_heads"])
        return Keyed.mixer(self, config)

    def head_dim(self, config: Config) -> int:
        """Rotated features of a head. A config may repeat their number as `head_dim`. Raises UnsupportedError."""
        return int(config.only("head_dim", config["qk_rope_head_dim"], None) or config["qk_rope_head_dim"])

    def position(self, config: Config) -> SpecJson:
        position = rope(config, self.head_dim(config), layout="interleaved" if self.interleaved(config) else "half")
        scaling = position["scaling"]
        if scaling and scaling.get("mscale_all_dim"):
            scaling["scale_scores"] = True
        return position

    def interleaved(self, config: Config) -> bool:
        return bool(config.get("rope_interleave", True))

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        position = expect(layer.mixer, MLA, "mixer").position
        return {**rope_config(position), "rope_interleave": getattr(position, "layout", "") == "interleaved"}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, MLA, "mixer")
        if mixer.q_rank is None:
            yield same(f"{ours}.q.weight", f"{theirs}.q_proj.weight")
        else:
            yield from both(f"{ours}.q_down", f"{theirs}.q_a_proj", bias=mixer.bias)
            yield same(f"{ours}.q_norm.gain", f"{theirs}.q_a_layernorm.weight")
            yield same(f"{ours}.q.weight", f"{theirs}.q_b_proj.weight")
        yield from both(f"{ours}.kv_down", f"{theirs}.kv_a_proj_with_mqa", bias=mixer.bias)
        yield same(f"{ours}.kv_norm.gain", f"{theirs}.kv_a_layernorm.weight")
        sizes = [mixer.nope_dim, mixer.value_features]
        yield from fused_layers(ours, "kv", f"{theirs}.kv_b_proj", sizes, groups=mixer.heads)
        yield from both(f"{ours}.o", f"{theirs}.o_proj", bias=mixer.bias)


GREEDY, GROUPED = "greedy", "group_limited_greedy"


class DeepSeekV2(DeepSeekV3):
    """V3 with softmax scores, groups scored by their best expert, and no load-balancing bias. DeepSeek-AI 2024,
    arXiv:2405.04434."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v2",)
    ffn_keys: ClassVar[Keys] = {**DeepSeekV3.ffn_keys, "mlp_bias": "bias"}
    expert_fixed: ClassVar[SpecJson] = {
        **DeepSeekV3.expert_fixed,
        "score": "softmax",
        "group_score": "max",
        "normalise": False,
        "bias_rate": None,
    }
    expert_keys: ClassVar[Keys] = {
        **without(DeepSeekV3.expert_keys, "n_group", "topk_group", "norm_topk_prob"),
        "mlp_bias": "shared_bias",
    }

    def interleaved(self, config: Config) -> bool:
        return True

    def experts(self, config: Config) -> SpecJson:
        # transformers does not normalise, even with norm_topk_prob, and has no groups if topk_method is greedy.
        config.ignore("norm_topk_prob", "n_group", "topk_group")
        grouped = config.only("topk_method", GREEDY, GROUPED) == GROUPED
        groups = {"groups": config["n_group"], "top_groups": config["topk_group"]} if grouped else {}
        return {**super().experts(config), "groups": 1, "top_groups": 1, **groups}

    def check_routing(self, config: Config) -> None:
        config.only("scoring_func", "softmax")

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().block_config(layer)
        turned = arguments["qk_rope_head_dim"]
        for key in ("qk_nope_head_dim", "kv_lora_rank"):
            if (arguments[key] + turned) % 2:
                # They are stored beside the rotated features, which transformers reads as complex numbers.
                raise UnsupportedError(f"mixer.{key}", f"must be even, not {arguments[key]}")
        return arguments

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().ffn_config(layer)
        if not isinstance(layer.ffn, DeepSeekMoE):
            return arguments
        if layer.ffn.groups == 1:
            return {**arguments, "topk_method": GREEDY}
        groups = {"n_group": layer.ffn.groups, "topk_group": layer.ffn.top_groups}
        return {**arguments, "topk_method": GROUPED, **groups}


INDEXED = "indexed_attention"


class DeepSeekV32(ListedExperts, DeepSeekV3):
    """DeepSeek V3 with sparse attention, without the indexer's loss, which transformers does not have. DeepSeek-AI
    2025, arXiv:2512.02556."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v32",)
    index_layout: ClassVar[str] = "half"
    mixer_class: ClassVar[type[Mixer]] = DeepSeekSparseAttention
    mixer_keys: ClassVar[Keys] = {
        **DeepSeekV3.mixer_keys,
        "index_n_heads": "index_heads",
        "index_head_dim": "index_dim",
        "index_topk": "top_k",
    }
    mixer_fixed: ClassVar[SpecJson] = {**DeepSeekV3.mixer_fixed, "kind": "dsa", "index_loss": 0.0}

    def mixer(self, config: Config) -> SpecJson:
        config.only("layer_types", [INDEXED] * config["num_hidden_layers"])
        return {**super().mixer(config), "index_layout": self.index_layout}

    def interleaved(self, config: Config) -> bool:
        return True

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().position_config(layer)
        del arguments["rope_interleave"]
        return arguments

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        for name, other in (("q", "wq_b"), ("k", "wk"), ("weights", "weights_proj")):
            yield same(f"{ours}.indexer.{name}.weight", f"{theirs}.indexer.{other}.weight")
        yield from layernorm(f"{ours}.indexer.k_norm", f"{theirs}.indexer.k_norm")


class Glm4MoeLite(ListedExperts, DeepSeekV3):
    """GLM-4.7-Flash: DeepSeek-V3's latent attention and, in the layers that a list names, its experts. GLM Team 2026,
    https://huggingface.co/zai-org/GLM-4.7-Flash."""

    model_types: ClassVar[tuple[str, ...]] = ("glm4_moe_lite",)
    preference: ClassVar[int] = 3


class GlmMoeDsa(DeepSeekV32):
    """GLM-5: DeepSeek V3.2's block with interleaved RoPE in the indexer. Zhipu AI 2026,
    https://huggingface.co/zai-org/GLM-5. Layers that reuse a lower layer's indexer cannot be converted."""

    model_types: ClassVar[tuple[str, ...]] = ("glm_moe_dsa",)
    index_layout: ClassVar[str] = "interleaved"

    def mixer(self, config: Config) -> SpecJson:
        config.only("indexer_types", ["full"] * config["num_hidden_layers"])
        return super().mixer(config)


class Youtu(NoExperts, DeepSeekV3):
    """Youtu-LLM: DeepSeek-V3's latent attention with dense FFNs. Tencent 2025,
    https://huggingface.co/tencent/Youtu-LLM-2B."""

    model_types: ClassVar[tuple[str, ...]] = ("youtu",)
    ignored: ClassVar[tuple[str, ...]] = ("embedding_initializer_range", "mlp_bias", "rope_interleave")
    preference: ClassVar[int] = 3


class MiniCPM3(NoExperts, DeepSeekV3):
    """Latent attention and dense FFNs, with MiniCPM's multipliers of embeddings, branches and logits. Hu et al. 2024,
    arXiv:2404.06395; https://huggingface.co/openbmb/MiniCPM3-4B."""

    model_types: ClassVar[tuple[str, ...]] = ("minicpm3",)
    preference: ClassVar[int] = 4
    model_keys: ClassVar[Keys] = {
        **DeepSeekV3.model_keys,
        "scale_emb": Key("embedding_scale", float, resolved="embedding_factor"),
    }
    ffn_keys: ClassVar[Keys] = {**DeepSeekV3.ffn_keys, "mlp_bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        scale = 1 / (config["hidden_size"] / config["dim_model_base"])
        return {**super().spec(config), "logit_scale": scale}

    def block(self, config: Config) -> SpecJson:
        scale = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])
        return {**super().block(config), "norm_placement": {"kind": "pre", "branch_scale": scale}}

    def interleaved(self, config: Config) -> bool:
        return False

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments, root = super().config(spec), math.sqrt(spec.n_layers)
        del arguments["rope_interleave"]
        scale = spec.layers[0].norm_placement.branch_scale
        depth = inverse(lambda depth: depth / root, scale * root, scale)
        return {**arguments, "scale_depth": depth, "dim_model_base": round(spec.logit_scale * spec.d_model) or 1}
