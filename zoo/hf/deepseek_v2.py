"""DeepSeek V2."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import dense
from zoo.hf._config import Config, ConfigJson
from zoo.hf.deepseek_v3 import DeepSeekV3

GREEDY, GROUPED = "greedy", "group_limited_greedy"


class DeepSeekV2(DeepSeekV3):
    """V3 with softmax scores, groups scored by their best expert, and no bias that balances. DeepSeek-AI 2024,
    arXiv:2405.04434."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v2",)

    def ffn(self, config: Config) -> SpecJson:
        return {**super().ffn(config), "bias": config["mlp_bias"]}

    def interleaved(self, config: Config) -> bool:
        return True

    def experts(self, config: Config) -> SpecJson:
        config.only("scoring_func", "softmax")
        # transformers does not normalise, whatever norm_topk_prob says, and has no groups where it is greedy.
        config.ignore("norm_topk_prob", "n_group", "topk_group")
        grouped = config.only("topk_method", GREEDY, GROUPED) == GROUPED
        return self.shared_and_fine(config) | {
            "score": "softmax",
            "groups": config["n_group"] if grouped else 1,
            "top_groups": config["topk_group"] if grouped else 1,
            "group_score": "max",
            "normalise": False,
            "bias_rate": None,
            "shared_bias": config["mlp_bias"],
        }

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().block_config(layer)
        turned = arguments["qk_rope_head_dim"]
        for key in ("qk_nope_head_dim", "kv_lora_rank"):
            if (arguments[key] + turned) % 2:
                # They lie beside what is turned, which transformers reads as complex numbers.
                raise UnsupportedError(f"mixer.{key}", f"{arguments[key]} must be even")
        return arguments

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        bias = moe.shared_bias if isinstance(moe, DeepSeekMoE) else dense(layer).bias
        return {**super().ffn_config(layer), "mlp_bias": bias}

    def grouping(self, moe: DeepSeekMoE) -> ConfigJson:
        if moe.groups == 1:
            return {"topk_method": GREEDY}
        return {"topk_method": GROUPED, "n_group": moe.groups, "topk_group": moe.top_groups}
