"""HyperCLOVA X SEED."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Key, Keys
from zoo.hf._llama_like import PRE
from zoo.hf.granite import Granite
from zoo.hf.llama import Llama
from zoo.settings.edits import SpecJson

OUTPUT_NORMS = {"mixer_residual.norm_out": "post_norm1", "ffn_residual.norm_out": "post_norm2"}


class HyperClovaX(Granite):
    """Granite's multipliers, with norms behind the branches or without. NAVER Cloud 2025,
    https://huggingface.co/naver-hyperclovax/HyperCLOVAX-SEED-Think-14B."""

    model_types: ClassVar[tuple[str, ...]] = ("hyperclovax",)
    preference: ClassVar[int] = 3
    model_keys: ClassVar[Keys] = {
        **Llama.model_keys,
        "embedding_multiplier": Granite.model_keys["embedding_multiplier"],
        "logits_scaling": Key("logit_scale", float),
    }

    def block(self, config: Config) -> SpecJson:
        block = super().block(config)
        kind = "double" if config["use_post_norm"] else "pre"
        return {**block, "norm_placement": {**block["norm_placement"], "kind": kind}}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_post_norm": layer.norm_placement.kind == "double"}

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return PRE | OUTPUT_NORMS if layer.norm_placement.kind == "double" else PRE
