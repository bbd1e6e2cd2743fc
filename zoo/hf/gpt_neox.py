"""GPT-NeoX and all that share its config: Pythia."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._common import attention, dense, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._ffn import activation, ffn
from zoo.hf._gpt import fused_qkv, linears
from zoo.hf._pairs import Pair, layernorm, same
from zoo.hf._rope import partial_rope_config, rope
from zoo.spec import ModelSpec


class GPTNeoX(Family):
    """Black et al. 2022, arXiv:2204.06745."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_neox",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "is_decoder")
        dropout = config["hidden_dropout"]
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": config["num_hidden_layers"],
            "tie_embeddings": config["tie_word_embeddings"],
            "embedding_dropout": dropout,
            "block": {
                "norm": {"kind": "layernorm", "eps": config["layer_norm_eps"]},
                "topology": "parallel_two_norms" if config["use_parallel_residual"] else "serial",
                "dropout": dropout,
                "mixer": {
                    "kind": "attention",
                    "heads": config["num_attention_heads"],
                    "position": rope(config, head_dim, partial=True),
                    "bias": config["attention_bias"],
                    "dropout": config["attention_dropout"],
                },
                "ffn": {
                    **ffn(config, "hidden_act", gated=False),
                    "d_ff": config["intermediate_size"],
                    "bias": True,
                },
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = attention(layer)
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "layer_norm_eps": norm_eps(layer),
            "use_parallel_residual": layer.topology != "serial",
            "hidden_dropout": layer.dropout,
            "num_attention_heads": mixer.heads,
            "attention_dropout": mixer.dropout,
            "attention_bias": bool(mixer.bias),
            "hidden_act": activation(layer.ffn, gated=False),
            "intermediate_size": dense(layer).width,
            **partial_rope_config(mixer.position),
        }

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
