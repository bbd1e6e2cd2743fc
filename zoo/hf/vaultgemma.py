"""VaultGemma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf.gemma2 import Gemma2
from zoo.settings.edits import SpecJson


class VaultGemma(Gemma2):
    """Gemma 2 without norms behind the branches. VaultGemma Team 2025, arXiv:2510.15001."""

    model_types: ClassVar[tuple[str, ...]] = ("vaultgemma",)
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "pre"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_feedforward_layernorm",
    }
