"""Which tensors of two models correspond, and how each side's become the other's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zoo.errors import UnsupportedError

if TYPE_CHECKING:
    from zoo.hf._family import Family
    from zoo.spec import ModelSpec

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Pair:
    """Tensors of ours that hold the same numbers as tensors of theirs. `read` takes theirs to ours, `write` back."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Callable[[Tensors], Tensors]
    write: Callable[[Tensors], Tensors]


def same(ours: str, theirs: str) -> Pair:
    """Equal tensors."""
    return Pair((ours,), (theirs,), lambda x: x, lambda x: x)


def both(ours: str, theirs: str, *, bias: bool) -> Iterable[Pair]:
    """Equal weights, and equal biases where there are any, of modules with these names."""
    names = ["weight", "bias"] if bias else ["weight"]
    return [same(f"{ours}.{name}", f"{theirs}.{name}") for name in names]


def layernorm(ours: str, theirs: str, *, bias: bool = True) -> Iterator[Pair]:
    """A norm's gain, and its bias where it has one."""
    yield same(f"{ours}.gain", f"{theirs}.weight")
    if bias:
        yield same(f"{ours}.bias", f"{theirs}.bias")


def transposed(ours: str, theirs: str) -> Pair:
    """Matrices with their two last dimensions exchanged, as those of GPT-2's Conv1D are."""

    def swap(x: Tensors) -> Tensors:
        return [x[0].transpose(-1, -2)]

    return Pair((ours,), (theirs,), swap, swap)


def reshaped(ours: str, theirs: str, our_shape: Sequence[int], their_shape: Sequence[int]) -> Pair:
    """The same numbers in the same order under another shape."""
    return Pair((ours,), (theirs,), lambda x: [x[0].reshape(our_shape)], lambda x: [x[0].reshape(their_shape)])


def fused(ours: Sequence[str], theirs: str, sizes: Sequence[int], groups: int = 1, dim: int = 0) -> Pair:
    """Several tensors of ours side by side in one of theirs, along `dim`.

    With groups, theirs is `groups` stretches, each with sizes[0] rows of the first, sizes[1] of the second, … : heads
    whose queries, keys and values lie together.
    """

    def split(x: Tensors) -> Tensors:
        parts = x[0].unflatten(dim, (groups, sum(sizes))).split(list(sizes), dim=dim + 1)
        return [part.flatten(dim, dim + 1) for part in parts]

    def join(x: Tensors) -> Tensors:
        parts = [part.unflatten(dim, (groups, size)) for part, size in zip(x, sizes, strict=True)]
        return [torch.cat(parts, dim=dim + 1).flatten(dim, dim + 1)]

    return Pair(tuple(ours), (theirs,), split, join)


def stacked(ours: str, theirs: Sequence[str]) -> Pair:
    """One tensor of ours whose first dimension counts several of theirs."""
    return Pair((ours,), tuple(theirs), lambda x: [torch.stack(list(x))], lambda x: list(x[0].unbind(0)))


def to_ours(family: Family, spec: ModelSpec, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict, in memory of its own. Every tensor of theirs is used once, every one of ours is filled once."""
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for pair in family.weights(spec):
        _claim(pair.theirs, used, theirs, "the model")
        values = pair.read([theirs[name].detach() for name in pair.theirs])
        found |= {name: _own(value) for name, value in zip(pair.ours, values, strict=True)}
    _all_used(family, used, theirs)
    return found


def to_theirs(
    family: Family, spec: ModelSpec, ours: Mapping[str, Tensor], like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Their state dict, in memory of its own. like: that of a model of theirs with other values."""
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for pair in family.weights(spec):
        _claim(pair.ours, used, ours, "our model")
        values = pair.write([ours[name] for name in pair.ours])
        found |= {name: _own(value) for name, value in zip(pair.theirs, values, strict=True)}
    _all_used(family, set(found), like)
    if left := set(ours) - used:
        raise UnsupportedError(min(left), "our tensor has no place in theirs")
    first = {id(like[name]): found[name] for name in like if name in found}
    return {name: found[name] if name in found else first.get(id(value), value) for name, value in like.items()}


def _claim(names: Iterable[str], used: set[str], tensors: Mapping[str, Tensor], owner: str) -> None:
    for name in names:
        if name not in tensors:
            raise UnsupportedError(name, f"{owner} has no such tensor")
        if name in used:
            raise TypeError(f"the family uses the tensor '{name}' twice")
        used.add(name)


def _all_used(family: Family, used: set[str], tensors: Mapping[str, Tensor]) -> None:
    """Raise for a tensor of theirs without a counterpart, unless it is another name of one that has it."""
    shared = {id(tensors[name]) for name in used if name in tensors}
    for name, value in tensors.items():
        computed = any(fnmatch(name, pattern) for pattern in family.buffers)
        if name not in used and id(value) not in shared and not computed:
            raise UnsupportedError(name, "the tensor has no counterpart")


def _own(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.contiguous_format)
