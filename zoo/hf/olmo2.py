"""OLMo 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import OUTPUT, LlamaLike
from zoo.settings.edits import SpecJson


class Olmo2(LlamaLike):
    """x + norm(f(x)), with a norm over the full width of queries and keys. OLMo et al. 2025, arXiv:2501.00656."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo2",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "output"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    norm_names: ClassVar[Mapping[str, str]] = OUTPUT
