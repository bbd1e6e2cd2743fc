"""A model under test, and how what it does is compared with what it must do."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

import zoo
from zoo.caching.cache import Cache
from zoo.conformance.combinations import PREFIX, given_to, of_chunk, random_model, random_tokens
from zoo.site import Given
from zoo.spec import ModelSpec

LENGTH = 19
"""Tokens of the texts that models read."""
CHUNK = 8
"""Largest `chunk` of a part under test, so that these texts are cut, and their last piece is shorter."""


NOT_APPLICABLE = "not applicable"
"""What a check returns of a model that cannot have the property."""


class ConformanceError(AssertionError):
    """A model does not do what every model must: what was found, in words."""


class CheckSubject:
    """A spec, and the model that its checks share: none of them changes it.

    `thorough` adds what differs little between specs. Every `chunk` is at most `CHUNK`.
    """

    def __init__(self, spec: ModelSpec, thorough: bool = True) -> None:
        self.spec, self.thorough = with_short_chunks(spec), thorough

    @functools.cached_property
    def model(self) -> zoo.Decoder:
        return random_model(self.spec)

    @functools.cached_property
    def double(self) -> zoo.Decoder:
        """The same model in float64."""
        return copy.deepcopy(self.model).double()

    def read(self, batch: int, length: int = LENGTH, prefix: int = PREFIX) -> tuple[torch.Tensor, Given]:
        """Tokens, and what a pass over them is told beside them."""
        return random_tokens(self.spec, batch, length), given_to(self.spec, batch, LENGTH, prefix)


def with_short_chunks(spec: ModelSpec) -> ModelSpec:
    """The spec with every `chunk` of its parts at most `CHUNK`; as it is where a part refuses that."""
    data = spec.dump()
    short = _cut(data)
    if short == data:
        return spec
    try:
        return zoo.parse(short)
    except zoo.SpecError:
        return spec


def _cut(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: min(value, CHUNK) if key == "chunk" else _cut(value) for key, value in data.items()}
    return [_cut(value) for value in data] if isinstance(data, list) else data


def require(condition: object, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


def require_equal(found: object, expected: object, what: str) -> None:
    require(found == expected, f"{what}: {found}, not {expected}")


def require_same(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Equal to 5e-5 of the largest logit. What is always float32, as norms and routers are, still rounds."""
    require_equal(tuple(actual.shape), tuple(expected.shape), f"shape of {what}")
    off, largest = (actual - expected).abs().max().item(), max(1.0, expected.abs().max().item())
    require(off <= 5e-5 * largest, f"{what} differ by {off:.2g}, the largest logit being {largest:.2g}")


def require_refused(call: Callable[[], object], words: str) -> None:
    """Require that a call raises ValueError with these words."""
    try:
        call()
    except ValueError as error:
        require(words in str(error), f"the error says '{error}', not '{words}'")
        return
    raise ConformanceError(f"no error that {words}")


def read_in(
    model: zoo.Decoder,
    tokens: torch.Tensor,
    chunks: list[int],
    cache: Cache,
    given: Given,
    left_pad: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits of a text read in these chunks."""
    starts = itertools.accumulate(chunks, initial=0)
    parts = [
        model(chunk, cache, None if start else left_pad, **of_chunk(given, start, chunk.shape[1]))
        for chunk, start in zip(tokens.split(chunks, dim=1), starts, strict=False)
    ]
    return torch.cat(parts, dim=1)
