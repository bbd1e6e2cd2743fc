"""Common code of families of the GPT kind: fused and transposed projections, partial RoPE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zoo.hf._common import attention, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._pairs import Pair, Tensors, both, fused, same
from zoo.mixers.attention import Attention
from zoo.spec import ModelSpec

QKV = ("q", "k", "v")
UNREAD = (
    "n_ctx",
    "n_special",
    "output_past",
    "predict_special_tokens",
    *(f"summary_{name}" for name in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")),
)
"""Keys of published configs that the language model does not read."""


def sizes(spec: ModelSpec) -> ConfigJson:
    """Sizes and rates that the configs of OpenAI's line share."""
    layer = spec.layers[0]
    mixer = attention(layer)
    return {
        "vocab_size": spec.vocab_size,
        "n_embd": spec.d_model,
        "n_layer": spec.n_layers,
        "tie_word_embeddings": spec.tie_embeddings,
        "layer_norm_epsilon": norm_eps(layer),
        "embd_pdrop": spec.embedding_dropout,
        "attn_pdrop": mixer.dropout,
        "resid_pdrop": layer.dropout,
        "n_head": mixer.heads,
    }


def linears(ours: str, theirs: str, names: dict[str, str], biases: Iterable[str]) -> Iterator[Pair]:
    """Linear layers by our name and theirs. biases: ours of those that have a bias."""
    for our_name, their_name in names.items():
        yield from both(f"{ours}.{our_name}", f"{theirs}.{their_name}", bias=our_name in biases)


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


def inner(config: Config) -> int:
    """Hidden features of the FFN, four times the stream's where the config does not say."""
    given = config["n_inner"]
    return int(given) if given is not None else 4 * int(config["n_embd"])


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
