"""GPT-NeoX and all that share its config: Pythia."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._gpt import FusedQKV
from zoo.hf._keyed import Keyed
from zoo.hf._keys import BIAS, Key, Keys
from zoo.settings.edits import SpecJson


class GPTNeoX(FusedQKV):
    """Black et al. 2022, arXiv:2204.06745."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_neox",)

    model_keys: ClassVar[Keys] = {**Keyed.model_keys, "hidden_dropout": "embedding_dropout"}
    block_keys: ClassVar[Keys] = {
        "hidden_dropout": "dropout",
        "use_parallel_residual": Key(
            "topology",
            lambda parallel: "parallel_two_norms" if parallel else "serial",
            lambda topology: topology != "serial",
        ),
    }
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "attention_dropout": "dropout",
        "attention_bias": BIAS,
    }
    partial_rotary: ClassVar[bool] = True
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}
    table_name: ClassVar[str] = "gpt_neox.embed_in"
    final_norm_name: ClassVar[str] = "gpt_neox.final_layer_norm"
    layers_name: ClassVar[str] = "gpt_neox.layers"
    mixer_name: ClassVar[str] = "attention"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "is_decoder")
        return super().spec(config)
