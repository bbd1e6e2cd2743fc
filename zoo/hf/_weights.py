"""Conversion of weights between a family's model and ours, in both directions, each tensor once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch

import torch
from torch import Tensor

from zoo.errors import UnsupportedError
from zoo.hf._family import Family
from zoo.spec import ModelSpec


def to_ours(family: Family, spec: ModelSpec, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict, in its own memory. Raises UnsupportedError for a tensor that is missing, unused or not finite."""
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for pair in family.weights(spec):
        _claim(pair.theirs, used, theirs, "the transformers model")
        check_finite({name: theirs[name] for name in pair.theirs})
        values = pair.read([theirs[name].detach() for name in pair.theirs])
        found |= {name: _own(value) for name, value in zip(pair.ours, values, strict=True)}
    _all_used(family, used, theirs)
    return found


def to_theirs(
    family: Family, spec: ModelSpec, ours: Mapping[str, Tensor], like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Their state dict, in its own memory. like: the state dict of such a model with other values. Raises
    UnsupportedError for a tensor that is missing or has no counterpart."""
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for pair in family.weights(spec):
        _claim(pair.ours, used, ours, "the zoo model")
        values = pair.write([ours[name] for name in pair.ours])
        found |= {name: _own(value) for name, value in zip(pair.theirs, values, strict=True)}
    _all_used(family, set(found), like)
    if left := set(ours) - used:
        raise UnsupportedError(min(left), "the tensor has no counterpart in the transformers model")
    first = {id(like[name]): found[name] for name in like if name in found}
    return {name: found[name] if name in found else first.get(id(value), value) for name, value in like.items()}


def _claim(names: Iterable[str], used: set[str], tensors: Mapping[str, Tensor], owner: str) -> None:
    for name in names:
        if name not in tensors:
            raise UnsupportedError(name, f"missing from {owner}")
        if name in used:
            raise TypeError(f"the family uses the tensor '{name}' twice")
        used.add(name)


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise UnsupportedError for a tensor with infinities or NaN."""
    for name, value in tensors.items():
        if value.is_meta or not value.is_floating_point() or bool(value.sum(dtype=torch.float32).isfinite()):
            continue  # a finite sum has finite terms, and is much faster than a test of each
        if not bool(value.isfinite().all()):
            raise UnsupportedError(name, "contains infinities or NaN: the checkpoint is damaged")


def _all_used(family: Family, used: set[str], tensors: Mapping[str, Tensor]) -> None:
    """Raise UnsupportedError for a tensor without a counterpart, unless it is a buffer or an alias of a used tensor."""
    shared = {id(tensors[name]) for name in used if name in tensors}
    for name, value in tensors.items():
        computed = any(fnmatch(name, pattern) for pattern in family.buffers)
        if name not in used and id(value) not in shared and not computed:
            raise UnsupportedError(name, "the tensor has no counterpart")


def _own(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.contiguous_format)
