"""MiniCPM 3."""

from __future__ import annotations

import math
from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.hf._common import inverse
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Key, Keys
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class MiniCPM3(DeepSeekV3):
    """Latent attention and dense FFNs, with MiniCPM's multipliers of embeddings, branches and logits. Hu et al. 2024,
    arXiv:2404.06395; https://huggingface.co/openbmb/MiniCPM3-4B."""

    model_types: ClassVar[tuple[str, ...]] = ("minicpm3",)
    preference: ClassVar[int] = 4
    model_keys: ClassVar[Keys] = {
        **DeepSeekV3.model_keys,
        "scale_emb": Key("embedding_scale", float, resolved="embedding_factor"),
    }
    ffn_keys: ClassVar[Keys] = {**DeepSeekV3.ffn_keys, "mlp_bias": "bias"}
    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    expert_keys: ClassVar[Keys] = {}

    def spec(self, config: Config) -> SpecJson:
        scale = 1 / (config["hidden_size"] / config["dim_model_base"])
        return {**super().spec(config), "logit_scale": scale}

    def sparse(self, config: Config) -> list[bool]:
        return [False] * int(config["num_hidden_layers"])

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {}

    def block(self, config: Config) -> SpecJson:
        scale = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])
        return {**super().block(config), "norm_placement": {"kind": "pre", "branch_scale": scale}}

    def interleaved(self, config: Config) -> bool:
        return False

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments, root = super().config(spec), math.sqrt(spec.n_layers)
        del arguments["rope_interleave"]
        scale = spec.layers[0].norm_placement.branch_scale
        depth = inverse(lambda depth: depth / root, scale * root, scale)
        return {**arguments, "scale_depth": depth, "dim_model_base": round(spec.logit_scale * spec.d_model) or 1}
