"""GLM-5."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf.deepseek_v32 import DeepSeekV32
from zoo.settings.edits import SpecJson


class GlmMoeDsa(DeepSeekV32):
    """DeepSeek V3.2's block at sizes of its own. Zhipu AI 2026, https://huggingface.co/zai-org/GLM-5. Layers that reuse
    the choice of an indexer below cannot be converted."""

    model_types: ClassVar[tuple[str, ...]] = ("glm_moe_dsa",)
    index_layout: ClassVar[str] = "interleaved"

    def mixer(self, config: Config) -> SpecJson:
        config.only("indexer_types", ["full"] * config["num_hidden_layers"])
        return super().mixer(config)
