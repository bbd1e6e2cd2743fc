"""StarCoder 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, DROPOUT, Key, Keys
from zoo.hf.mistral import Mistral
from zoo.settings.edits import SpecJson

UNREAD = (
    "activation_function",
    "attention_softmax_in_fp32",
    "layer_norm_epsilon",
    "mlp_type",
    "norm_type",
    "scale_attention_softmax_in_fp32",
    "scale_attn_weights",
)
"""Keys of published configs that transformers does not read."""


class Starcoder2(Mistral):
    """Mistral with LayerNorm, an ungated FFN, and biases. Lozhkov et al. 2024, arXiv:2402.19173."""

    model_types: ClassVar[tuple[str, ...]] = ("starcoder2",)
    model_keys: ClassVar[Keys] = {**Mistral.model_keys, "embedding_dropout": Key("embedding_dropout", float)}
    block_keys: ClassVar[Keys] = {"residual_dropout": DROPOUT}
    norm_keys: ClassVar[Keys] = {"norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**Mistral.mixer_keys, "use_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**Mistral.ffn_keys, "use_bias": "bias"}
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "c_fc", "down": "c_proj"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        return super().spec(config)
