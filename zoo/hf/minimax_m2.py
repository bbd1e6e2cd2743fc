"""MiniMax-M2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config
from zoo.hf._keys import Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.hf.mixtral import Mixtral
from zoo.settings.edits import SpecJson


class MiniMaxM2(LlamaLike):
    """Full attention with partial RoPE and a norm over the full width of queries and keys; experts with sigmoid scores
    and a bias that balances. MiniMax 2025, https://huggingface.co/MiniMaxAI/MiniMax-M2."""

    model_types: ClassVar[tuple[str, ...]] = ("minimax_m2",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    partial_rotary: ClassVar[bool] = True
    experts_class: ClassVar[type[MoE]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "shared_experts": 0, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("router_aux_loss_coef", "output_router_logits")  # its balance is the bias's
        return self.experts(config)

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().expert_weights(moe, ours, theirs)
        yield same(f"{ours}.router.selection_bias", f"{theirs}.e_score_correction_bias")
