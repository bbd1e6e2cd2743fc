"""Initialisation of a model from another's weights: fewer kv heads from more (Ainslie et al. 2023, arXiv:2305.13245),
more layers from fewer (Gong et al. 2019, Efficient Training of BERT by Progressively Stacking; Du et al. 2024,
arXiv:2405.15319), fewer from more (Sajjad et al. 2020, arXiv:2004.03844), wider ones from narrower ones (see
`zoo.conversion.widening`), mixtures of experts from dense layers (Komatsuzaki et al. 2022, arXiv:2212.05055), and an
untied head from a tied one.

Settings without weights, such as a window, a RoPE base and its scaling or dropout, may differ freely.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import torch
from torch import Tensor

from zoo.construction import build
from zoo.conversion.widening import check_widening, widened
from zoo.errors import SpecError
from zoo.ffns._moe import MoELayer
from zoo.mixers.attention import AttentionLayer
from zoo.model import Decoder
from zoo.spec import ModelSpec

Pooling = Literal["mean", "first", "random"]
"""Method of merging kv heads into one: their mean, the first of them, or a new random draw."""

Growth = Literal["stack", "duplicate", "width", "thin", "truncate"]
"""Source of layer i. From n layers to k·n: i mod n with `stack`, which repeats the whole stack, ⌊i/k⌋ with `duplicate`,
which repeats each layer. From n to m < n: ⌊i·n/m⌋ with `thin`, spread evenly, i with `truncate`, without the last ones.
`width` keeps the number of layers and copies their features."""

_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")


def convert(
    source: Decoder, spec: ModelSpec, pooling: Pooling = "mean", seed: int = 0, growth: Growth | None = None
) -> Decoder:
    """A model of `spec` with the weights of `source`. If it has fewer kv heads, they are pooled.

    If `spec` has a mixture of experts and `source` a dense layer as wide as an expert, every expert starts as that
    layer, and the router from initial values. An untied head starts as the token table of a tied `source`.

    Query head h reads kv head ⌊h·K/H⌋, so kv head j of K′ replaces the heads j·K/K′ … (j+1)·K/K′ − 1 of K. With the
    pooling `random`, keys and values whose shape changes keep the initial values drawn with `seed`. With the growth
    `stack` or `duplicate`, the model may have a multiple of the layers, with `thin` or `truncate` fewer: it computes
    another function than the source, from which training continues. With `width` it computes the same function, and
    `seed` draws the shares with which copies of a feature are read.

    Raises:
        SpecError: a weight has no counterpart, or a shape that none of these changes explains.
    """
    model = build(spec, seed=seed)
    _check(source, model, growth)
    if growth == "width":
        model.load_state_dict(widened(source.spec, spec, source.state_dict(), seed))
        return model
    own, theirs = model.state_dict(), _counterparts(source, model, growth)
    heads = {name: layer.kv_heads for name, layer in model.named_modules() if isinstance(layer, AttentionLayer)}
    for name, value in theirs.items():
        if own[name].shape == value.shape:
            own[name] = value
        elif pooling != "random":
            kv_heads = heads[name.rsplit(".", 2)[0]]
            groups: Tensor = value.unflatten(0, (kv_heads, len(value) // len(own[name]), -1))  # (K′, K/K′, d, …)
            own[name] = (groups.mean(1) if pooling == "mean" else groups[:, 0]).flatten(0, 1)
    model.load_state_dict(own)
    return model


def _counterparts(source: Decoder, target: Decoder, growth: Growth | None) -> dict[str, Tensor]:
    """The source's weights under the target's names."""
    given = _layered(source, len(target.blocks), growth)
    weights = dict(given)
    for layer, experts in _mixtures(target).items():  # a dense layer that becomes a mixture is copied to each expert
        dense = re.compile(rf"{re.escape(layer)}\.((up|gate|down)\.(weight|bias))")
        for match in filter(None, map(dense.fullmatch, given)):
            value = weights.pop(match[0])
            weights[f"{layer}.experts.{match[1]}"] = value.expand(experts, *value.shape)
    if source.head is None and target.head is not None:
        weights["head.weight"] = weights["embedding.weight"]
    return weights


def _layered(source: Decoder, many: int, growth: Growth | None) -> dict[str, Tensor]:
    """The source's weights with its blocks repeated or left out, so that there are `many`. Raises SpecError."""
    weights, few = source.state_dict(), len(source.blocks)
    if few == many:
        return weights
    wanted = ("stack", "duplicate") if many > few else ("thin", "truncate")
    if growth not in wanted:
        raise SpecError("n_layers", f"going from {few} to {many} blocks needs growth: {' or '.join(wanted)}")
    if growth in ("stack", "duplicate") and many % few:
        raise SpecError("n_layers", f"{many} blocks are not a multiple of {few}, as growth: {growth} needs")
    became = [i % few if growth in ("stack", "truncate") else i * few // many for i in range(many)]
    made: dict[str, Tensor] = {}
    for name, value in weights.items():
        match = _BLOCK.fullmatch(name)
        here = [f"blocks.{i}.{match[2]}" for i, j in enumerate(became) if j == int(match[1])] if match else [name]
        made |= dict.fromkeys(here, value)
    return made


def _mixtures(model: Decoder) -> dict[str, int]:
    """Number of experts of each mixture, keyed by the layer's name."""
    return {name: layer.spec.experts for name, layer in model.named_modules() if isinstance(layer, MoELayer)}


def check_conversion(source: ModelSpec, target: ModelSpec, growth: Growth | None = None) -> None:
    """Raise SpecError if `convert` would, without allocating memory for weights."""
    with torch.device("meta"):
        _check(Decoder(source), Decoder(target), growth)


def _check(source: Decoder, target: Decoder, growth: Growth | None) -> None:
    if growth == "width":
        check_widening(source.spec, target.spec, source.state_dict())
        return
    theirs, own = _counterparts(source, target, growth), target.state_dict()
    routers = tuple(f"{layer}.router." for layer in _mixtures(target))
    drawn = {name for name in own if name.startswith(routers)} - source.state_dict().keys()  # keep their initial values
    if unmatched := (theirs.keys() ^ own.keys()) - drawn:
        raise SpecError("", f"only one of the two models has {min(unmatched)}")
    attention = {name for name, layer in target.named_modules() if isinstance(layer, AttentionLayer)}
    for name, value in own.items():
        if name in theirs and value.shape != theirs[name].shape and not _can_pool(name, theirs[name], value, attention):
            rule = "only key and value heads can be pooled"
            if ".experts." in name:
                width = theirs[name].shape[2 if ".down." in name else 1]
                rule = f"an expert must be as wide as the layer that it copies, d_ff: {width}"
            shapes = f"{tuple(theirs[name].shape)}, which cannot become {tuple(value.shape)}"
            raise SpecError("", f"{name} has the shape {shapes}: {rule}")


def _can_pool(name: str, theirs: Tensor, own: Tensor, attention: Collection[str]) -> bool:
    layer, _, projection = name.rpartition(".")[0].rpartition(".")
    fits = theirs.shape[1:] == own.shape[1:] and len(theirs) % len(own) == 0
    return fits and projection in ("k", "v") and layer in attention
