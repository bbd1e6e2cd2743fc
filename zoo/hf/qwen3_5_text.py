"""Qwen 3.5, the dense language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys
from zoo.hf._layered import Hybrid
from zoo.hf._pairs import Pair, fused, same
from zoo.hf._rope import rope
from zoo.hf.qwen3_next import Qwen3Next
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.settings.edits import SpecJson


class Qwen35(Qwen3Next):
    """Qwen3-Next's mixers with dense FFNs. Qwen Team 2026, https://huggingface.co/Qwen/Qwen3.5-27B."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_5_text",)
    preference: ClassVar[int] = 3
    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    expert_keys: ClassVar[Keys] = {}

    def position(self, config: Config) -> SpecJson:
        # Of the three axes of a position, which are equal in text.
        unread = ("mrope_section", "mrope_interleaved")
        return rope(config, self.head_dim(config), partial=True, unread=unread)

    def sparse(self, config: Config) -> list[bool]:
        return Hybrid.sparse(self, config)

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {}

    def deltanet_inputs(self, mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
        k_heads, head_dim, v_dim = mixer.sizes()
        sizes = [k_heads * head_dim, k_heads * head_dim, mixer.heads * v_dim]
        yield fused([f"{ours}.{name}.weight" for name in "qkv"], f"{theirs}.in_proj_qkv.weight", sizes)
        for name, letter in (("gate", "z"), ("strength", "b"), ("forget", "a")):
            yield same(f"{ours}.{name}.weight", f"{theirs}.in_proj_{letter}.weight")
