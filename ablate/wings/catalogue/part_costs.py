"""Costs of a part of a model, and of a published model, at a stated context."""

from __future__ import annotations

from typing import TypedDict

import zoo
from ablate.readable import short
from zoo.errors import SpecError
from zoo.spec import ModelSpec

CONTEXT, DTYPE = 4096, "bfloat16"
LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 8192
"""Sizes of the model in which a part's costs are shown: the preset `small`, enlarged."""
PLACES = {
    "mixers": "block.mixer",
    "ffns": "block.ffn",
    "norms": "block.norm",
    "residuals": "block.norm_placement",
    "positions": "block.mixer.position",
    "sparsities": "block.mixer.sparsity",
}
"""Path of an axis's part in a model."""


class DeclaredCosts(TypedDict):
    """flops_per_token: of a forward pass. cache_bytes: for one row of `context` tokens in bfloat16."""

    context: int
    parameters: int
    flops_per_token: float
    cache_bytes: int


def costs_of(spec: ModelSpec) -> DeclaredCosts:
    """Declared costs of a model at a context of 4,096 tokens."""
    found = zoo.cost(spec, CONTEXT)
    return {
        "context": CONTEXT,
        "parameters": found.params,
        "flops_per_token": found.flops_per_token_forward,
        "cache_bytes": found.cache_bytes(1, CONTEXT, DTYPE),
    }


def costs_with(axis: str, kind: str) -> DeclaredCosts | None:
    """Costs of a model of 8 layers and 512 features that has the part, all else as in the preset `small`.

    None if the part needs settings or other parts that this model lacks.
    """
    if axis not in PLACES:
        return None
    sizes = {"d_model": WIDTH, "n_layers": LAYERS, "vocab_size": VOCABULARY, "block.mixer.heads": HEADS}
    try:
        return costs_of(zoo.load("small", **sizes).edit({PLACES[axis]: kind}))
    except SpecError:
        return None


def shown(costs: DeclaredCosts) -> str:
    """`29.4M parameters; at a context of 4,096 tokens 92.4M FLOPs a token forward and 67.1MB of cache (bfloat16)`."""
    flops, cache = short(costs["flops_per_token"]), short(costs["cache_bytes"])
    return (
        f"{short(costs['parameters'])} parameters; at a context of {costs['context']:,} tokens {flops} FLOPs a token"
        f" forward and {cache}B of cache ({DTYPE})"
    )
