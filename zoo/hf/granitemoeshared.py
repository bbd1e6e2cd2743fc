"""Granite with experts and a shared one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.hf._config import Config
from zoo.hf._keys import Key, Keys
from zoo.hf._pairs import Pair, fused, same
from zoo.hf.granitemoe import GraniteMoe
from zoo.settings.edits import SpecJson


class GraniteMoeShared(GraniteMoe):
    """Granite Team 2025, https://huggingface.co/ibm-granite."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoeshared",)
    preference: ClassVar[int] = 3
    expert_keys: ClassVar[Keys] = {
        **GraniteMoe.expert_keys,
        "shared_intermediate_size": Key("shared_d_ff", lambda width: width or None, resolved="shared_width"),
    }

    def experts(self, config: Config) -> SpecJson:
        return {**super().experts(config), "shared_experts": int(config["shared_intermediate_size"] > 0)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().expert_weights(moe, ours, theirs)
        if moe.shared_experts:
            yield from shared_weights(f"{ours}.shared", theirs, moe.shared_width)


def shared_weights(ours: str, theirs: str, width: int) -> Iterator[Pair]:
    """Gate and up in one matrix, and down, of an FFN that every token uses. theirs: name of the layer's `mlp`."""
    theirs = theirs.removesuffix("mlp") + "shared_mlp"
    yield fused([f"{ours}.gate.weight", f"{ours}.up.weight"], f"{theirs}.input_linear.weight", [width] * 2)
    yield same(f"{ours}.down.weight", f"{theirs}.output_linear.weight")
