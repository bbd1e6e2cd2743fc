"""DeepSeek V3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import FineExperts
from zoo.hf._pairs import Pair, both, fused, same
from zoo.hf._rope import rope, rope_config
from zoo.mixers.mla import MLA


class DeepSeekV3(FineExperts):
    """Latent attention, and experts after some dense layers. DeepSeek-AI 2024, arXiv:2412.19437."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v3",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore("qk_head_dim")  # it follows from others
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        heads = config["num_attention_heads"]
        config.only("num_key_value_heads", heads)
        return {
            "kind": "mla",
            "heads": heads,
            "q_rank": config["q_lora_rank"],
            "kv_rank": config["kv_lora_rank"],
            "nope_dim": config["qk_nope_head_dim"],
            "rope_dim": config["qk_rope_head_dim"],
            "v_dim": config["v_head_dim"],
            "latent_norm": {"kind": "rmsnorm", "eps": 1e-6},
            "bias": config["attention_bias"],
            "dropout": float(config["attention_dropout"] or 0.0),
            "position": self.position(config),
        }

    def head_dim(self, config: Config) -> int:
        """Features that are turned. A config has them under this name too."""
        return int(config.only("head_dim", config["qk_rope_head_dim"], None) or config["qk_rope_head_dim"])

    def position(self, config: Config) -> SpecJson:
        position = rope(config, self.head_dim(config), layout="interleaved" if self.interleaved(config) else "half")
        scaling = position["scaling"]
        if scaling and scaling.get("mscale_all_dim"):
            scaling["scale_scores"] = True
        return position

    def interleaved(self, config: Config) -> bool:
        return bool(config.get("rope_interleave", True))

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = expect(layer.mixer, MLA, "mixer")
        return {
            **self.norm_config(layer),
            "num_attention_heads": mixer.heads,
            "num_key_value_heads": mixer.heads,
            "q_lora_rank": mixer.q_rank,
            "kv_lora_rank": mixer.kv_rank,
            "qk_nope_head_dim": mixer.nope_dim,
            "qk_rope_head_dim": mixer.rope_dim,
            "v_head_dim": mixer.v_dim,
            "attention_bias": mixer.bias,
            "attention_dropout": mixer.dropout,
            **self.ffn_config(layer),
            **self.position_config(layer),
        }

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
        yield fused([f"{ours}.k.weight", f"{ours}.v.weight"], f"{theirs}.kv_b_proj.weight", sizes, groups=mixer.heads)
        yield from both(f"{ours}.o", f"{theirs}.o_proj", bias=mixer.bias)
