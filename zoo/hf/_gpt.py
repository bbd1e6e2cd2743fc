"""Common code of families of the GPT kind: fused and transposed projections, partial RoPE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import QKV, WIDTH, Config, ConfigJson, Keys
from zoo.hf._family import Pair, fused_layers, same, transposed
from zoo.hf._keyed import Keyed
from zoo.hf._layers import attention, expect
from zoo.mixers.attention import Attention
from zoo.positions.learned import Learned
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

UNREAD = (
    "n_ctx",
    "n_special",
    "output_past",
    "predict_special_tokens",
    *(f"summary_{name}" for name in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")),
)
"""Keys of published configs that the language model does not read."""


class OpenAILike(Keyed):
    """Keys and module names of OpenAI's models: LayerNorm, biases, an ungated FFN."""

    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "n_embd": "d_model",
        "n_layer": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
        "embd_pdrop": "embedding_dropout",
    }
    block_keys: ClassVar[Keys] = {"resid_pdrop": "dropout"}
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"n_head": "heads", "attn_pdrop": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    activation_key: ClassVar[str] = "activation_function"
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"n_inner": WIDTH}
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}

    table_name: ClassVar[str] = "transformer.wte"
    final_norm_name: ClassVar[str] = "transformer.ln_f"
    layers_name: ClassVar[str] = "transformer.h"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "ln_1", "ffn_residual.norm_in": "ln_2"}
    mixer_name: ClassVar[str] = "attn"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "c_fc", "down": "c_proj"}

    def ffn(self, config: Config) -> SpecJson:
        kind = super().ffn(config)
        return {**kind, "d_ff": 4 * config["hidden_size"] if kind["d_ff"] is None else int(kind["d_ff"])}


class LearnedPositions(Keyed):
    """Family with a learned table of positions."""

    length_key: ClassVar[str] = "n_positions"
    offset: ClassVar[int] = 0
    positions_name: ClassVar[str] = "transformer.wpe"
    """Name of the table of positions."""

    def position(self, config: Config) -> SpecJson:
        return {"kind": "learned", "length": config[self.length_key], "offset": self.offset}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {self.length_key: expect(attention(layer).position, Learned, "mixer.position").length}

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().ends(spec)
        yield same("positions.0.table.weight", f"{self.positions_name}.weight")


class FusedQKV(Keyed):
    """Family with one matrix for q, k and v: `stretches` runs of rows, each with first q, then k, then v."""

    fused_name: ClassVar[str] = "query_key_value"
    mixer_names: ClassVar[Mapping[str, str]] = {"o": "dense"}

    def stretches(self, mixer: Attention) -> int:
        """Number of runs of rows in the fused matrix: one per kv head."""
        return mixer.sizes()[1]

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        heads, kv_heads, head_dim = mixer.sizes()
        groups = self.stretches(mixer)
        rows = [heads * head_dim // groups, *[kv_heads * head_dim // groups] * 2]
        yield from fused_layers(ours, QKV, f"{theirs}.{self.fused_name}", rows, groups, bias="q" in mixer.bias)
        yield from super().mixer_weights(layer, ours, theirs)


class Transposed(FusedQKV):
    """Family whose matrices are stored transposed; biases are not."""

    fused_name: ClassVar[str] = "c_attn"
    mixer_names: ClassVar[Mapping[str, str]] = {"o": "c_proj"}

    def stretches(self, mixer: Attention) -> int:
        return 1

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return _transposed(super().mixer_weights(layer, ours, theirs))

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return _transposed(super().ffn_weights(layer, ours, theirs))


def _transposed(pairs: Iterator[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        yield transposed(pair) if pair.theirs[0].endswith(".weight") else pair
