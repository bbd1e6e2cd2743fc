"""Autoregressive decoding, greedy or sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Unpack, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import Cache
from zoo.decode.compiled import NextLogits, compiled_step, roomy_cache
from zoo.decode.sampling import NEVER, Sampling, Stop
from zoo.errors import UnsupportedError
from zoo.model import Decoder
from zoo.settings.explain import checked
from zoo.site import Given


def generate(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    left_pad: Tensor | None = None,
    stop: Stop = NEVER,
    generator: torch.Generator | None = None,
    cache: Cache | None = None,
    compile: bool = False,
    **settings: Any,
) -> Tensor:
    """tokens: (B, T) prompts → (B, N) continuations, N ≤ new_tokens.

    left_pad: (B,), number of padding tokens at the left of each prompt. stop: sequences that end a row; decoding stops
    when all rows have ended. cache: an empty cache, plain by default. compile: whether to use a compiled step (see
    `zoo.decode.compiled`), which pays off from thousands of tokens on. settings: fields of `Sampling`, by default
    greedy, and further inputs of the prompts (`zoo.site.Given`), such as `encoder_tokens` or `prefix`.
    """
    given, sampling = divided(settings)
    how = checked(Sampling, sampling)
    start = end = tokens.shape[1]
    text = F.pad(tokens.long(), (0, new_tokens))  # the prompts, and room for what follows

    def choose(logits: Tensor) -> Tensor:
        return how.choose(logits, text[:, :end], left_pad, generator)

    own, further = cache is None and not compile, None
    if compile:
        for name in given:
            raise UnsupportedError(name, "a compiled step takes only tokens and left_pad: decode without compile")
        further = compiled_step(model)
        cache = cache or roomy_cache(model, tokens.shape[0], tokens.shape[1] + new_tokens)
    # Without a caller's cache nothing that is made here outlives the call, so no view or version needs to be tracked.
    with torch.inference_mode() if own else torch.no_grad():
        for token in steps(model, tokens, new_tokens, choose, left_pad=left_pad, cache=cache, further=further, **given):
            text[:, end : end + 1] = token
            end += 1
            if stop.sequences and bool(stop.ended(text[:, start:end]).all()):
                break
    return stop.cut(text[:, start:end])


def steps(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    *,
    left_pad: Tensor | None = None,
    cache: Cache | None = None,
    further: NextLogits | None = None,
    **given: Unpack[Given],
) -> Iterator[Tensor]:
    """Yield tokens, (B, 1) each, chosen from logits: (B, V). tokens: (B, T), the prompts; given: their further inputs.
    further: computes the logits after single tokens, by default uncompiled."""
    if cache is None:
        cache = cache_for(model, tokens, new_tokens, given)
    further = further or partial(next_logits, model)
    for number in range(new_tokens):
        first = number == 0
        tokens = choose(next_logits(model, tokens, cache, left_pad, **given) if first else further(tokens, cache))
        yield tokens


def next_logits(
    model: Decoder, tokens: Tensor, cache: Cache, left_pad: Tensor | None = None, **given: Unpack[Given]
) -> Tensor:
    """Logits (B, V) after the last of tokens: (B, T)."""
    return model.read_out(model.hidden(tokens, cache, left_pad, **given)[:, -1:])[:, 0]


def cache_for(model: Decoder, tokens: Tensor, new_tokens: int, given: Given) -> Cache:
    """A plain cache for prompts, (B, T), and `new_tokens` after them."""
    encoded = given["encoder_tokens"].shape[1] if "encoder_tokens" in given else None
    return model.new_cache(tokens.shape[0], tokens.shape[1] + new_tokens, encoder_capacity=encoded)


def divided(settings: Mapping[str, object]) -> tuple[Given, dict[str, object]]:
    """Split settings into further inputs of the prompts, and the rest."""
    given = {name: value for name, value in settings.items() if name in Given.__annotations__}
    return cast(Given, given), {name: value for name, value in settings.items() if name not in given}
