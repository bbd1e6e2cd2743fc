"""A model under test, and the comparisons that checks are made of."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

import zoo
from zoo.caching.cache import Cache
from zoo.conformance.combinations import PREFIX, given_to, of_chunk, random_model, random_tokens
from zoo.site import Given
from zoo.spec import ModelSpec

LENGTH = 19
"""Length of the texts that models read, in tokens."""
CHUNK = 8
"""Largest `chunk` of a part under test: texts span several chunks, the last one shorter."""


NOT_APPLICABLE = "not applicable"
"""Return value of a check for a model that cannot have the property."""


class ConformanceError(AssertionError):
    """A model lacks a property that every model must have. The message says what was found."""


class CheckSubject:
    """A spec, and its model, which the checks share and do not change.

    `thorough` adds tests whose results differ little between specs. Every `chunk` is at most `CHUNK`.
    """

    def __init__(self, spec: ModelSpec, thorough: bool = True) -> None:
        self.spec, self.thorough = spec, thorough
        data = spec.dump()
        if (short := _cut(data)) != data:
            with suppress(zoo.SpecError):  # a part may refuse shorter chunks
                self.spec = zoo.parse(short)

    @functools.cached_property
    def model(self) -> zoo.Decoder:
        return random_model(self.spec)

    @functools.cached_property
    def double(self) -> zoo.Decoder:
        """The same model in float64."""
        return copy.deepcopy(self.model).double()

    def read(self, batch: int, length: int = LENGTH, prefix: int = PREFIX) -> tuple[torch.Tensor, Given]:
        """Random tokens (batch, length), and the other inputs of a pass over `LENGTH` of them."""
        return random_tokens(self.spec, batch, length), given_to(self.spec, batch, LENGTH, prefix)


def _cut(data: Any) -> Any:
    """Plain data with every `chunk` at most `CHUNK`."""
    if isinstance(data, Mapping):
        return {key: min(value, CHUNK) if key == "chunk" else _cut(value) for key, value in data.items()}
    return [_cut(value) for value in data] if isinstance(data, list) else data


def require(condition: object, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


def require_equal(found: object, expected: object, what: str) -> None:
    require(found == expected, f"{what}: {found}, not {expected}")


def require_same(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Require equality to 5e-5 of the largest logit: parts that are always float32 (norms, routers) still round."""
    require_equal(tuple(actual.shape), tuple(expected.shape), f"shape of {what}")
    off, largest = (actual - expected).abs().max().item(), max(1.0, expected.abs().max().item())
    require(off <= 5e-5 * largest, f"{what} differ by {off:.2g}; the largest logit is {largest:.2g}")


def require_refused(call: Callable[[], object], words: str) -> None:
    """Require that a call raises ValueError with these words."""
    try:
        call()
    except ValueError as error:
        require(words in str(error), f"the error says '{error}', not '{words}'")
        return
    raise ConformanceError(f"no error with the words '{words}'")


def read_in(
    model: zoo.Decoder,
    tokens: torch.Tensor,
    chunks: list[int],
    cache: Cache,
    given: Given,
    left_pad: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits of a text read in chunks of these lengths."""
    starts = itertools.accumulate(chunks, initial=0)
    parts = [
        model(chunk, cache, None if start else left_pad, **of_chunk(given, start, chunk.shape[1]))
        for chunk, start in zip(tokens.split(chunks, dim=1), starts, strict=False)
    ]
    return torch.cat(parts, dim=1)
