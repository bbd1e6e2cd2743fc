"""Layers that differ by named edits of a base block."""

from __future__ import annotations

from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._config import Config
from zoo.hf._layers import layered
from zoo.hf._llama_like import LlamaLike


class Layered(LlamaLike):
    """Llama's block, edited layer by layer. Families say which layer has which edits."""

    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        kinds = zip(self.mixer_kinds(config), self.ffn_kinds(config), strict=True)
        return {**super().spec(config), **layered([[*mixer, *ffn] for mixer, ffn in kinds], self.edits(config))}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        """Which of `edits` each layer has, that are about its mixer."""
        return [[] for _ in range(config["num_hidden_layers"])]

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        """And about its FFN."""
        return [[] for _ in range(config["num_hidden_layers"])]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        """Edits of the base block by name."""
        return {}
