"""Qwen 3.5, the dense language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layered import Layered
from zoo.hf._pairs import Pair, fused, same
from zoo.hf._rope import rope
from zoo.hf.qwen3_next import Qwen3Next
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.spec import ModelSpec


class Qwen35(Qwen3Next):
    """Qwen3-Next's mixers with dense FFNs. Qwen Team 2026, https://huggingface.co/Qwen/Qwen3.5-27B."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_5_text",)
    preference: ClassVar[int] = 3

    def position(self, config: Config) -> SpecJson:
        # Of the three axes of a position, which are equal in text.
        unread = ("mrope_section", "mrope_interleaved")
        return rope(config, self.head_dim(config), partial=True, unread=unread)

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        return Layered.ffn_kinds(self, config)

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return self.linear_edits(config)

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        for key in ("mlp_only_layers", "decoder_sparse_step"):
            del arguments[key]
        return arguments

    def deltanet_inputs(self, mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
        k_heads, head_dim, v_dim = mixer.sizes()
        sizes = [k_heads * head_dim, k_heads * head_dim, mixer.heads * v_dim]
        yield fused([f"{ours}.{name}.weight" for name in "qkv"], f"{theirs}.in_proj_qkv.weight", sizes)
        for name, letter in (("gate", "z"), ("strength", "b"), ("forget", "a")):
            yield same(f"{ours}.{name}.weight", f"{theirs}.in_proj_{letter}.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return Layered.ffn_weights(self, layer, ours, theirs)
