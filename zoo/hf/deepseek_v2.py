"""DeepSeek V2."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys, without
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.settings.edits import SpecJson

GREEDY, GROUPED = "greedy", "group_limited_greedy"


class DeepSeekV2(DeepSeekV3):
    """V3 with softmax scores, groups scored by their best expert, and no bias that balances. DeepSeek-AI 2024,
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
        # transformers does not normalise, whatever norm_topk_prob says, and has no groups where it is greedy.
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
                # They lie beside what is turned, which transformers reads as complex numbers.
                raise UnsupportedError(f"mixer.{key}", f"{arguments[key]} must be even")
        return arguments

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().ffn_config(layer)
        if not isinstance(layer.ffn, DeepSeekMoE):
            return arguments
        if layer.ffn.groups == 1:
            return {**arguments, "topk_method": GREEDY}
        groups = {"n_group": layer.ffn.groups, "topk_group": layer.ffn.top_groups}
        return {**arguments, "topk_method": GROUPED, **groups}
