"""Kolibri 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._experts import BESIDE_SHARED, require_shared
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keyed import PRE
from zoo.hf._keys import Keys
from zoo.hf._layered import ExpertsEverywhere
from zoo.hf._rope_by_layer import NearRoPE
from zoo.hf.glm import OUTPUT_NORMS
from zoo.settings.edits import SpecJson


class Kolibri(ExpertsEverywhere, NearRoPE, FineExperts):
    """Norms on both sides of a branch, a norm of each head's queries and keys, windows with RoPE and full attention
    without, experts whose bias is on the router's logits. Aleph Alpha 2026, https://huggingface.co/Aleph-Alpha/Kolibri-1.
    """

    model_types: ClassVar[tuple[str, ...]] = ("kolibri1",)
    qk_norm: ClassVar[SpecJson | None] = {}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    norm_names: ClassVar[Mapping[str, str]] = PRE | OUTPUT_NORMS
    expert_fixed: ClassVar[SpecJson] = {**FineExperts.expert_fixed, "bias_on": "logit", "shared_experts": 1}
    expert_keys: ClassVar[Keys] = BESIDE_SHARED

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)

    def experts(self, config: Config) -> SpecJson:
        require_shared(config)
        return super().experts(config)
