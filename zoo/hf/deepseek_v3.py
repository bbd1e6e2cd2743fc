"""DeepSeek V3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keyed import Keyed
from zoo.hf._keys import Key, Keys
from zoo.hf._pairs import Pair, both, fused, same
from zoo.hf._rope import rope, rope_config
from zoo.mixers import Mixer
from zoo.mixers.mla import MLA
from zoo.settings.edits import SpecJson


class DeepSeekV3(FineExperts):
    """Latent attention, and experts after some dense layers. DeepSeek-AI 2024, arXiv:2412.19437."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v3",)

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

    def spec(self, config: Config) -> SpecJson:
        config.ignore("qk_head_dim")  # it follows from others
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        config.only("num_key_value_heads", config["num_attention_heads"])
        return Keyed.mixer(self, config)

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
