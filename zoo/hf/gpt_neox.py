"""GPT-NeoX and all that share its config: Pythia."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._common import attention, linears
from zoo.hf._config import Config
from zoo.hf._gpt import fused_qkv
from zoo.hf._keyed import Keyed
from zoo.hf._keys import BIAS, Key, Keys
from zoo.hf._pairs import Pair, layernorm, same
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GPTNeoX(Keyed):
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

    def spec(self, config: Config) -> SpecJson:
        config.ignore("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "is_decoder")
        return super().spec(config)

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "gpt_neox.embed_in.weight")
        yield from layernorm("norm", "gpt_neox.final_layer_norm")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i, layer in enumerate(spec.layers):
            ours, theirs, mixer = f"blocks.{i}", f"gpt_neox.layers.{i}", attention(layer)
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.input_layernorm")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.post_attention_layernorm")
            yield from fused_qkv(mixer, f"{ours}.mixer", f"{theirs}.attention.query_key_value", mixer.heads)
            yield from linears(f"{ours}.mixer", f"{theirs}.attention", {"o": "dense"}, mixer.bias)
            names = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}
            yield from linears(f"{ours}.ffn", f"{theirs}.mlp", names, names)
