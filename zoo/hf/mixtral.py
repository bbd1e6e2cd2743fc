"""Mixtral."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config
from zoo.hf._experts import balance_loss, gated_experts
from zoo.hf._keys import WIDTH, Keys
from zoo.hf._pairs import Pair, same
from zoo.hf._version import MAJOR
from zoo.hf.mistral import Mistral
from zoo.settings.edits import SpecJson


class Mixtral(Mistral):
    """Mistral with experts. Jiang et al. 2024, arXiv:2401.04088.

    transformers takes the balance loss of all layers at once, ours is the mean over them.
    """

    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = {
        "intermediate_size": WIDTH,
        "num_local_experts": "experts",
        "num_experts_per_tok": "top_k",
    }

    def ffn(self, config: Config) -> SpecJson:
        return {**self.experts(config), "balance_loss": balance_loss(config)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        if MAJOR < 5:
            theirs = theirs.removesuffix("mlp") + "block_sparse_moe"
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts, ("w1", "w3", "w2"))
