"""Granite 3 with experts, and PowerMoE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config
from zoo.hf._experts import balance_loss, gated_experts
from zoo.hf._keys import Keys
from zoo.hf._pairs import Pair, same
from zoo.hf.granite import Granite
from zoo.hf.mixtral import Mixtral
from zoo.settings.edits import SpecJson


class GraniteMoe(Granite):
    """Granite's multipliers with experts in every layer. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoe",)
    preference: ClassVar[int] = 2
    has_head_dim: ClassVar[bool] = False
    experts_class: ClassVar[type[MoE] | tuple[()]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys

    def ffn(self, config: Config) -> SpecJson:
        return {**self.experts(config), "balance_loss": balance_loss(config)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        theirs = theirs.removesuffix("mlp") + "block_sparse_moe"
        yield same(f"{ours}.router.weight", f"{theirs}.router.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
