"""Decoding by one compiled program that serves every place of the stream.

A token of a small model takes less to compute than its operations take to be issued, one by one, from Python. Compiled
into one program (on CUDA replayed as one graph) they are issued at once. The program always reads all slots of the
cache, those not yet filled under a mask, so that its shapes are the same for every token.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from zoo.caching.cache import Cache, TokenCache
from zoo.errors import UnsupportedError
from zoo.kernels.compile_constants import hold_constants
from zoo.kernels.distinct_code import distinct_code
from zoo.model import Decoder
from zoo.site import Given

SLOTS = 128
"""Caches have a multiple of so many, so that prompts of other lengths find the program compiled."""

_programs: WeakKeyDictionary[Decoder, dict[Any, Callable[..., Tensor]]] = WeakKeyDictionary()
"""Compiled programs, by model and backend."""

NextLogits = Callable[[Tensor, Cache], Tensor]
"""(B, 1), the last token of each row, and a cache of those before → (B, V)."""


def compiled_step(model: Decoder, backend: str | Callable[..., Any] = "inductor") -> NextLogits:
    """One token further, as the model computes it to within rounding.

    The first call for a batch and a capacity compiles, which takes a minute on a CPU. A model's programs are kept as
    long as it is.

    Raises:
        UnsupportedError: at the first call, for caches that hold more than plain keys and values.
    """
    program = _program(model, backend)
    graphs = model.device.type == "cuda"

    def step(token: Tensor, cache: Cache) -> Tensor:
        _check(cache)
        cache.admit(token.shape[0], 1, None)
        index = torch.full((1,), cache.length, device=token.device)  # filled there: a copy would wait for the device
        if graphs:
            torch.compiler.cudagraph_mark_step_begin()
        logits: Tensor = program(model, token, index, cache)
        cache.length += 1
        for layer in cache.layers:
            cast(TokenCache, layer).length += 1
        return logits

    return step


def _program(model: Decoder, backend: str | Callable[..., Any]) -> Callable[..., Tensor]:
    if backend not in _programs.get(model, {}):
        mode = "reduce-overhead" if model.device.type == "cuda" else None
        hold_constants()
        own = distinct_code(cast(FunctionType, Decoder.logits_at))
        made = torch.compile(own, dynamic=False, fullgraph=True, mode=mode, backend=backend)
        _programs.setdefault(model, {})[backend] = made
    return _programs[model][backend]


def roomy_cache(model: Decoder, batch: int, tokens: int) -> Cache:
    """For so many tokens, in a number of slots that others share."""
    cache = model.new_cache(batch, -(-tokens // SLOTS) * SLOTS)
    _check(cache)
    for layer in cache.layers:
        for buffer in cast(TokenCache, layer).buffers:
            torch._dynamo.mark_static_address(buffer)  # a CUDA graph may write to it
    return cache


def check_given(given: Given) -> None:
    """Raises UnsupportedError for prompts that are told more than their tokens and padding."""
    for name in given:
        raise UnsupportedError(name, "a compiled step knows tokens and left_pad only: decode without compile")


def _check(cache: Cache) -> None:
    for number, layer in enumerate(cache.layers):
        if type(layer) is not TokenCache:
            reason = (
                f"layer {number} keeps a {type(layer).__name__}, and a compiled step knows plain keys and values only"
            )
            raise UnsupportedError("cache", f"{reason}: decode without compile")
