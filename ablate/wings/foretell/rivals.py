"""Llama models of other installed libraries than transformers: of the same shape, with their own weights.

`pip install x-transformers litgpt` installs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn


def rivals(config: Any, context: int) -> Iterator[tuple[str, nn.Module]]:
    """Models of the installed libraries by name, for texts of `context` tokens: (B, T) → logits (B, T, V). config: of
    transformers' model; none unless it is a Llama."""
    if config.model_type != "llama":
        return
    for name, (module, build) in LIBRARIES.items():
        if find_spec(module) is not None:
            yield name, build(config, context)


def _x_transformers(config: Any, context: int) -> nn.Module:
    library = import_module("x_transformers")
    layers = library.Decoder(
        dim=config.hidden_size,
        depth=config.num_hidden_layers,
        heads=config.num_attention_heads,
        attn_dim_head=config.head_dim,
        attn_kv_heads=config.num_key_value_heads,
        attn_flash=True,
        rotary_pos_emb=True,
        rotary_emb_dim=config.head_dim,
        use_rmsnorm=True,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        ff_mult=config.intermediate_size / config.hidden_size,
    )
    model: nn.Module = library.TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=context,
        use_abs_pos_emb=False,
        tie_embedding=config.tie_word_embeddings,
        attn_layers=layers,
    )
    return model


def _litgpt(config: Any, context: int) -> nn.Module:
    settings = import_module("litgpt.config").Config(
        block_size=context,
        vocab_size=config.vocab_size,
        padded_vocab_size=config.vocab_size,
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        n_query_groups=config.num_key_value_heads,
        head_size=config.head_dim,
        n_embd=config.hidden_size,
        intermediate_size=config.intermediate_size,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
    )
    model: nn.Module = import_module("litgpt.model").GPT(settings)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.transformer.wte.weight  # type: ignore[union-attr]
    return model


LIBRARIES: dict[str, tuple[str, Callable[[Any, int], nn.Module]]] = {
    "x-transformers": ("x_transformers", _x_transformers),
    "litgpt": ("litgpt", _litgpt),
}
