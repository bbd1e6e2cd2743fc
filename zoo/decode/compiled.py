"""Decoding by one compiled program that serves every index of the token stream.

For a small model, launching a token's operations one by one from Python takes longer than computing them. One compiled
program (on CUDA, one replayed graph) launches them together. The program always reads all slots of the cache and masks
those not yet filled, so that its shapes are the same for every token.
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
from zoo.kernels.compiling import distinct_code, hold_constants
from zoo.model import Decoder

SLOTS = 128
"""Caches have a multiple of this many slots, so that prompts of different lengths share a compiled program."""

_programs: WeakKeyDictionary[Decoder, dict[Any, Callable[..., Tensor]]] = WeakKeyDictionary()
"""Compiled programs, by model and backend."""

NextLogits = Callable[[Tensor, Cache], Tensor]
"""(B, 1), the last token of each row, and a cache of those before → (B, V)."""


def compiled_step(model: Decoder, backend: str | Callable[..., Any] = "inductor") -> NextLogits:
    """A function that computes the logits after one more token, equal to the model's to within rounding.

    Its first call for a batch and a capacity compiles, which takes a minute on a CPU. A model's programs are kept as
    long as the model.

    Raises:
        UnsupportedError: at each call, for caches that hold more than plain keys and values.
    """
    graphs = model.device.type == "cuda"
    if backend not in _programs.get(model, {}):
        hold_constants()
        own, mode = distinct_code(cast(FunctionType, Decoder.logits_at)), "reduce-overhead" if graphs else None
        made = torch.compile(own, dynamic=False, fullgraph=True, mode=mode, backend=backend)
        _programs.setdefault(model, {})[backend] = made
    program = _programs[model][backend]

    def step(token: Tensor, cache: Cache) -> Tensor:
        _check(cache)
        cache.admit(token.shape[0], 1, None)
        index = torch.full((1,), cache.length, device=token.device)  # filled there: a copy would synchronise
        if graphs:
            torch.compiler.cudagraph_mark_step_begin()
        logits: Tensor = program(model, token, index, cache)
        cache.length += 1
        for layer in cache.layers:
            cast(TokenCache, layer).length += 1
        return logits

    return step


def roomy_cache(model: Decoder, batch: int, tokens: int) -> Cache:
    """Cache for `tokens` tokens, rounded up to a multiple of `SLOTS`. Raises UnsupportedError as compiled steps do."""
    cache = model.new_cache(batch, -(-tokens // SLOTS) * SLOTS)
    _check(cache)
    for layer in cache.layers:
        for buffer in cast(TokenCache, layer).buffers:
            torch._dynamo.mark_static_address(buffer)  # a CUDA graph may write to it
    return cache


def _check(cache: Cache) -> None:
    for number, layer in enumerate(cache.layers):
        if type(layer) is not TokenCache:
            reason = f"layer {number} has a {type(layer).__name__}; a compiled step needs plain keys and values"
            raise UnsupportedError("cache", f"{reason}: decode without compile")
