"""K-EXAONE."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import Keys, without
from zoo.hf._near_rope import NearRoPE
from zoo.settings.edits import SpecJson


class ExaoneMoe(NearRoPE, ListedExperts):
    """A norm of each head's queries and keys, windows with RoPE and full attention without, DeepSeek-V3's experts. LG
    AI Research 2026, arXiv:2601.01739."""

    model_types: ClassVar[tuple[str, ...]] = ("exaone_moe",)
    qk_norm: ClassVar[SpecJson | None] = {}
    expert_keys: ClassVar[Keys] = {
        **without(ListedExperts.expert_keys, "n_routed_experts", "n_shared_experts"),
        "num_experts": "experts",
        "num_shared_experts": "shared_experts",
    }

    def spec(self, config: Config) -> SpecJson:
        config.ignore("sliding_window_pattern")  # it only says what layer_types are by default
        return super().spec(config)
