"""A model that starts from the weights of another: fewer kv heads from more (Ainslie et al. 2023, arXiv:2305.13245)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import torch
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
    _check(source, model)
    own, theirs = model.state_dict(), source.state_dict()
    heads = {name: layer.kv_heads for name, layer in model.named_modules() if isinstance(layer, AttentionLayer)}
    for name, value in theirs.items():
        if own[name].shape == value.shape:
            own[name] = value
        elif pooling != "random":
            own[name] = _pooled(value, own[name], heads[name.rsplit(".", 2)[0]], pooling)
    model.load_state_dict(own)
    return model


def _pooled(theirs: Tensor, own: Tensor, kv_heads: int, pooling: Pooling) -> Tensor:
    groups: Tensor = theirs.unflatten(0, (kv_heads, len(theirs) // len(own), -1))
    return (groups.mean(1) if pooling == "mean" else groups[:, 0]).flatten(0, 1)


def check_conversion(source: ModelSpec, target: ModelSpec) -> None:
    """Raise SpecError where `convert` would. Allocates nothing."""
    with torch.device("meta"):
        _check(Decoder(source), Decoder(target))


def _check(source: Decoder, target: Decoder) -> None:
    theirs, own = source.state_dict(), target.state_dict()
    if unmatched := theirs.keys() ^ own.keys():
        raise SpecError("", f"only one of the two models has {min(unmatched)}")
    attention = {name for name, layer in target.named_modules() if isinstance(layer, AttentionLayer)}
    for name, value in own.items():
        if value.shape != theirs[name].shape and not _can_pool(name, theirs[name], value, attention):
            shapes = f"{tuple(theirs[name].shape)}, which cannot become {tuple(value.shape)}"
            raise SpecError("", f"{name} has the shape {shapes}: only heads of keys and values can be pooled")


def _can_pool(name: str, theirs: Tensor, own: Tensor, attention: Collection[str]) -> bool:
    layer, _, projection = name.rpartition(".")[0].rpartition(".")
    fits = theirs.shape[1:] == own.shape[1:] and len(theirs) % len(own) == 0
    return fits and projection in ("k", "v") and layer in attention
