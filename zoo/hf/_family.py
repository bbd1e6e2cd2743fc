"""Interface of a family of transformers models, and conversion of its weights.

A family declares pairs: corresponding tensors of a zoo model (ours) and a transformers model (theirs), equal bit for
bit. Weights are converted by these pairs in both directions, each tensor once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import ClassVar, Literal

import torch
from torch import Tensor

from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

Task = Literal["causal", "masked", "sequence to sequence"]
"""Task of a family's models; transformers has an auto class for each."""

AUTO = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "sequence to sequence": "AutoModelForSeq2SeqLM",
}
CLASSES = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "sequence to sequence": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
}
"""transformers' names of auto classes and of model mappings, keyed by task."""


class Family(ABC):
    """Conversion of configs to specs and of specs to configs, and correspondence of tensors."""

    model_types: ClassVar[tuple[str, ...]]
    """Values of `config.model_type`."""
    buffers: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    """Name patterns of tensors in a state dict that are not weights but computed from the config."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Config keys without a meaning for its models, in addition to those of its base classes."""
    task: ClassVar[Task] = "causal"
    says_tied: ClassVar[bool] = False
    """Whether configs claim that the head is tied to the token table even if it is not."""
    preference: ClassVar[int] = 1
    """Rank among the families that can express a model: the smallest is chosen."""

    @classmethod
    def ignore(cls, config: Config) -> None:
        """Mark the keys in `ignored`, of this class and its bases, as read."""
        for family in cls.__mro__:
            config.ignore(*vars(family).get("ignored", ()))

    @abstractmethod
    def spec(self, config: Config) -> SpecJson:
        """Data for `zoo.parse`. Raises UnsupportedError for an option without a counterpart."""

    @abstractmethod
    def config(self, spec: ModelSpec) -> ConfigJson:
        """Arguments of the config class for a model that may or may not be of this family.

        Callers compare `spec(config(spec))` with the spec, so settings that the family cannot express need no check
        here. Raises UnsupportedError only if there is no config at all.
        """

    @abstractmethod
    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        """Pairs that contain every parameter of both models once."""


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


def fused_layers(
    ours: str, parts: Iterable[str], theirs: str, sizes: Sequence[int], groups: int = 1, *, bias: bool = False
) -> Iterator[Pair]:
    """Linear layers `parts` of our module, concatenated in one of theirs as in `fused`: weights, and with `bias`
    biases."""
    for name in ("weight", "bias") if bias else ("weight",):
        yield fused([f"{ours}.{part}.{name}" for part in parts], f"{theirs}.{name}", sizes, groups)


def convolution(ours: str, theirs: str, channels: int, width: int, *, bias: bool = False) -> Iterator[Pair]:
    """A convolution of each channel, whose weight is (channels, width) in ours and (channels, 1, width) in theirs."""
    yield reshaped(f"{ours}.weight", f"{theirs}.weight", (channels, width), (channels, 1, width))
    if bias:
        yield same(f"{ours}.bias", f"{theirs}.bias")


def stacked(ours: str, theirs: Sequence[str]) -> Pair:
    """One tensor of ours that stacks several of theirs along a new first dimension."""
    return Pair((ours,), tuple(theirs), lambda x: [torch.stack(list(x))], lambda x: list(x[0].unbind(0)))


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
