"""BioGPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.hf._common import linears
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import LearnedPositions
from zoo.hf._keys import WIDTH, Keys
from zoo.hf._pairs import Pair, layernorm, same
from zoo.hf.opt import OFFSET
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class BioGPT(LearnedPositions):
    """OPT with scaled embeddings, biases everywhere, and dropout of the embeddings, too. Luo et al. 2022,
    arXiv:2210.10341."""

    model_types: ClassVar[tuple[str, ...]] = ("biogpt",)
    preference: ClassVar[int] = 3
    length_key: ClassVar[str] = "max_position_embeddings"
    offset: ClassVar[int] = OFFSET
    block_keys: ClassVar[Keys] = {"hidden_dropout_prob": "dropout"}
    norm_keys: ClassVar[Keys] = {}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "attention_probs_dropout_prob": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"intermediate_size": WIDTH}
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
        config.only("activation_dropout", 0.0)
        config.ignore("layer_norm_eps")  # norms have torch's
        scale = "sqrt_d_model" if config["scale_embedding"] else 1.0
        dropout = config["hidden_dropout_prob"]
        return {**super().spec(config), "embedding_scale": scale, "embedding_dropout": dropout}

    def config(self, spec: ModelSpec) -> ConfigJson:
        factor = spec.embedding_factor
        if factor not in (1.0, spec.d_model**0.5):
            raise UnsupportedError("embedding_scale", f"{factor} cannot be expressed, only 1 and √d_model")
        return {**super().config(spec), "scale_embedding": factor != 1.0}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "biogpt.embed_tokens.weight")
        yield same("positions.0.table.weight", "biogpt.embed_positions.weight")
        yield from layernorm("norm", "biogpt.layer_norm")
        if not spec.tie_embeddings:
            yield same("head.weight", "output_projection.weight")
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"biogpt.layers.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.self_attn_layer_norm")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.final_layer_norm")
            names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
            yield from linears(f"{ours}.mixer", f"{theirs}.self_attn", names, names)
            names = {"up": "fc1", "down": "fc2"}
            yield from linears(f"{ours}.ffn", theirs, names, names)
