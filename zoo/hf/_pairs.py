"""Corresponding tensors of a zoo model (ours) and a transformers model (theirs), equal bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Pair:
    """Tensors of ours and of theirs that hold the same numbers. `read` maps theirs to ours, `write` ours to theirs."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Callable[[Tensors], Tensors]
    write: Callable[[Tensors], Tensors]


def same(ours: str, theirs: str) -> Pair:
    """Equal tensors."""
    return Pair((ours,), (theirs,), lambda x: x, lambda x: x)


def both(ours: str, theirs: str, *, bias: bool) -> Iterable[Pair]:
    """Equal weights, and with `bias` equal biases, of modules with these names."""
    names = ["weight", "bias"] if bias else ["weight"]
    return [same(f"{ours}.{name}", f"{theirs}.{name}") for name in names]


def layernorm(ours: str, theirs: str) -> Iterator[Pair]:
    """A norm's gain and its bias."""
    yield same(f"{ours}.gain", f"{theirs}.weight")
    yield same(f"{ours}.bias", f"{theirs}.bias")


def transposed(pair: Pair) -> Pair:
    """The pair with their matrices transposed, as in GPT-2's Conv1D."""

    def read(x: Tensors) -> Tensors:
        return pair.read([matrix.transpose(-1, -2) for matrix in x])

    def write(x: Tensors) -> Tensors:
        return [matrix.transpose(-1, -2) for matrix in pair.write(x)]

    return Pair(pair.ours, pair.theirs, read, write)


def reshaped(ours: str, theirs: str, our_shape: Sequence[int], their_shape: Sequence[int]) -> Pair:
    """The same numbers in the same order, in different shapes."""
    return Pair((ours,), (theirs,), lambda x: [x[0].reshape(our_shape)], lambda x: [x[0].reshape(their_shape)])


def fused(ours: Sequence[str], theirs: str, sizes: Sequence[int], groups: int = 1, dim: int = 0) -> Pair:
    """Several tensors of ours, concatenated along `dim` in one of theirs.

    With groups, theirs consists of `groups` runs, each with sizes[0] rows of the first, sizes[1] of the second, … : for
    example heads whose queries, keys and values are adjacent.
    """

    def split(x: Tensors) -> Tensors:
        parts = x[0].unflatten(dim, (groups, sum(sizes))).split(list(sizes), dim=dim + 1)
        return [part.flatten(dim, dim + 1) for part in parts]

    def join(x: Tensors) -> Tensors:
        parts = [part.unflatten(dim, (groups, size)) for part, size in zip(x, sizes, strict=True)]
        return [torch.cat(parts, dim=dim + 1).flatten(dim, dim + 1)]

    return Pair(tuple(ours), (theirs,), split, join)


def stacked(ours: str, theirs: Sequence[str]) -> Pair:
    """One tensor of ours that stacks several of theirs along a new first dimension."""
    return Pair((ours,), tuple(theirs), lambda x: [torch.stack(list(x))], lambda x: list(x[0].unbind(0)))
