"""GLM-4.7-Flash."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._fine_experts import ListedExperts
from zoo.hf.deepseek_v3 import DeepSeekV3


class Glm4MoeLite(ListedExperts, DeepSeekV3):
    """DeepSeek-V3's latent attention and experts, layers listed. GLM Team 2026,
    https://huggingface.co/zai-org/GLM-4.7-Flash."""

    model_types: ClassVar[tuple[str, ...]] = ("glm4_moe_lite",)
    preference: ClassVar[int] = 3
