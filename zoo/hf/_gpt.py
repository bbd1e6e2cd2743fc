"""Common code of families of the GPT kind: fused and transposed projections, partial RoPE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention, expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keyed import Keyed
from zoo.hf._keys import QKV, WIDTH, Keys
from zoo.hf._pairs import Pair, Tensors, fused, layernorm, same
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
    """Sizes and rates that the configs of OpenAI's line share: LayerNorm, biases, an FFN that is not gated."""

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

    def ffn(self, config: Config) -> SpecJson:
        kind = super().ffn(config)
        return {**kind, "d_ff": 4 * config["n_embd"] if kind["d_ff"] is None else int(kind["d_ff"])}


class LearnedPositions(Keyed):
    """With a table of positions."""

    length_key: ClassVar[str] = "n_positions"
    offset: ClassVar[int] = 0

    def position(self, config: Config) -> SpecJson:
        return {"kind": "learned", "length": config[self.length_key], "offset": self.offset}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {self.length_key: expect(attention(layer).position, Learned, "mixer.position").length}


def ends(spec: ModelSpec) -> Iterator[Pair]:
    """Token table, table of positions, last norm and head, as GPT-2 names them."""
    yield same("embedding.weight", "transformer.wte.weight")
    if any(isinstance(position, Learned) for position, _ in spec.positions):
        yield same("positions.0.table.weight", "transformer.wpe.weight")
    yield from layernorm("norm", "transformer.ln_f")
    if spec.head_bias:
        yield same("head_bias", "lm_head.bias")
    if not spec.tie_embeddings:
        yield same("head.weight", "lm_head.weight")


def fused_qkv(mixer: Attention, ours: str, theirs: str, groups: int) -> Iterator[Pair]:
    """One matrix for queries, keys and values: in each of `groups` stretches first queries, then keys, then values."""
    heads, kv_heads, head_dim = mixer.sizes()
    rows = [heads * head_dim // groups, *[kv_heads * head_dim // groups] * 2]
    for name in ["weight", "bias"] if "q" in mixer.bias else ["weight"]:
        yield fused([f"{ours}.{part}.{name}" for part in QKV], f"{theirs}.{name}", rows, groups)


def of_transposed(pair: Pair) -> Pair:
    """The pair where their matrices lie transposed, as those of GPT-2's Conv1D do."""

    def read(x: Tensors) -> Tensors:
        return pair.read([matrix.transpose(-1, -2) for matrix in x])

    def write(x: Tensors) -> Tensors:
        return [matrix.transpose(-1, -2) for matrix in pair.write(x)]

    return Pair(pair.ours, pair.theirs, read, write)


def conv_weights(d_model: int, ours: str, theirs: str) -> Iterator[Pair]:
    """The matrices of a block, transposed, and their biases."""
    fuse = [f"{ours}.mixer.{part}" for part in QKV]
    sizes = [d_model] * 3
    yield of_transposed(fused([f"{name}.weight" for name in fuse], f"{theirs}.attn.c_attn.weight", sizes))
    yield fused([f"{name}.bias" for name in fuse], f"{theirs}.attn.c_attn.bias", sizes)
    names = {"mixer.o": "attn.c_proj", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}
    for our_name, their_name in names.items():
        yield of_transposed(same(f"{ours}.{our_name}.weight", f"{theirs}.{their_name}.weight"))
        yield same(f"{ours}.{our_name}.bias", f"{theirs}.{their_name}.bias")
