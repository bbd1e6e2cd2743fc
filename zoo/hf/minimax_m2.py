"""MiniMax-M2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same


class MiniMaxM2(LlamaLike):
    """Full attention with partial RoPE and a norm over the full width of queries and keys; experts with sigmoid scores
    and a bias that balances. MiniMax 2025, https://huggingface.co/MiniMaxAI/MiniMax-M2."""

    model_types: ClassVar[tuple[str, ...]] = ("minimax_m2",)
    partial_rotary: ClassVar[bool] = True

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "qk_norm": self.norm(config), "qk_norm_over": "full"}

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("router_aux_loss_coef", "output_router_logits")  # its balance is the bias's
        kind = super().ffn(config)
        return {
            "kind": "deepseek_moe",
            "activation": name_of(**kind),
            "d_ff": kind["d_ff"],
            "experts": config["num_local_experts"],
            "top_k": config["num_experts_per_tok"],
            "shared_experts": 0,
            "balance_loss": 0.0,
        }

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = expect(layer.ffn, DeepSeekMoE, "ffn")
        if moe.bias_rate is None:
            raise UnsupportedError("ffn.bias_rate", "MiniMax-M2's experts have a bias that balances")
        sizes = {"intermediate_size": moe.width, "num_local_experts": moe.experts, "num_experts_per_tok": moe.top_k}
        return {"hidden_act": expert_act(moe), **sizes}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe = expect(layer.ffn, DeepSeekMoE, "ffn")
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield same(f"{ours}.router.selection_bias", f"{theirs}.e_score_correction_bias")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
