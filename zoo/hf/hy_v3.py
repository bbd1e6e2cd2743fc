"""Hunyuan 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.hf._config import Config
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import BIAS, WIDTH, Key, Keys
from zoo.settings.edits import SpecJson


class Hunyuan3(ListedExperts):
    """Attention with a norm of each head's queries and keys, sigmoid experts with a bias that balances. Tencent 2026,
    https://huggingface.co/tencent/Hy3-preview."""

    model_types: ClassVar[tuple[str, ...]] = ("hy_v3",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**ListedExperts.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**ListedExperts.ffn_keys, "mlp_bias": "bias"}
    balance_name: ClassVar[str] = "e_score_correction_bias"
    expert_keys: ClassVar[Keys] = {
        "moe_intermediate_size": WIDTH,
        "num_experts": "experts",
        "num_experts_per_tok": "top_k",
        "num_shared_experts": "shared_experts",
        "router_scaling_factor": Key("scale", float),
        "mlp_bias": "shared_bias",
    }

    def experts(self, config: Config) -> SpecJson:
        config.ignore("enable_moe_fp32_combine")  # the precision of a sum
        if not config["num_shared_experts"]:
            raise UnsupportedError("num_shared_experts", "transformers then shares an expert of intermediate_size")
        return super().experts(config)
