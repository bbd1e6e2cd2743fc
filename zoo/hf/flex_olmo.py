"""FlexOlmo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._llama_like import OUTPUT
from zoo.hf.olmoe import Olmoe
from zoo.settings.edits import SpecJson


class FlexOlmo(Olmoe):
    """OLMoE with norms behind the branches, as OLMo 2 has them. Shi et al. 2025, arXiv:2507.07024."""

    model_types: ClassVar[tuple[str, ...]] = ("flex_olmo",)
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "output"}
    norm_names: ClassVar[Mapping[str, str]] = OUTPUT
