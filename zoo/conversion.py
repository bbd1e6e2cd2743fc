"""A model that starts from the weights of another: fewer kv heads from more (Ainslie et al. 2023, arXiv:2305.13245)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from zoo.errors import SpecError
from zoo.mixers.attention import AttentionLayer
from zoo.model import Decoder, build
from zoo.spec import ModelSpec

Pooling = Literal["mean", "first", "random"]
"""How one kv head is made of those that it replaces: their mean, the first of them, or a new draw."""


def convert(source: Decoder, spec: ModelSpec, pooling: Pooling = "mean", seed: int = 0) -> Decoder:
    """A model of `spec` with the weights of `source`, and kv heads pooled where it has fewer of them.

    Query head h reads kv head ⌊h·K/H⌋, so kv head j of K′ stands for the heads j·K/K′ … (j+1)·K/K′ − 1 of K.
    With `random`, keys and values that change shape keep the initial values that `seed` gives them.

    Raises:
        SpecError: a weight has no counterpart, or another shape for another reason.
    """
    model = build(spec, seed=seed)
    theirs = source.state_dict()
    if unmatched := theirs.keys() ^ model.state_dict().keys():
        raise SpecError("", f"only one of the two models has {sorted(unmatched)[0]}")
    own = model.state_dict()
    heads = {name: layer.kv_heads for name, layer in model.named_modules() if isinstance(layer, AttentionLayer)}
    model.load_state_dict({name: _adapted(name, own[name], theirs[name], pooling, heads) for name in own})
    return model


def _adapted(name: str, own: Tensor, theirs: Tensor, pooling: Pooling, heads: Mapping[str, int]) -> Tensor:
    """Their value of a weight, or of a bias, in the shape of our own."""
    if own.shape == theirs.shape:
        return theirs
    layer, _, projection = name.rpartition(".")[0].rpartition(".")
    if (
        projection not in ("k", "v")
        or layer not in heads
        or own.shape[1:] != theirs.shape[1:]
        or len(theirs) % len(own)
    ):
        shapes = f"{tuple(theirs.shape)}, which cannot become {tuple(own.shape)}"
        raise SpecError("", f"{name} has the shape {shapes}: only heads of keys and values can be pooled")
    if pooling == "random":
        return own
    kv_heads, group = heads[layer], len(theirs) // len(own)
    pooled = theirs.unflatten(0, (kv_heads, group, -1))
    return (pooled.mean(1) if pooling == "mean" else pooled[:, 0]).flatten(0, 1)
