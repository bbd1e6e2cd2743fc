"""One token after the other: greedy or sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.cache import Cache
from zoo.decode.sampling import Sampling
from zoo.decode.stopping import NEVER, Stop
from zoo.explain import checked
from zoo.model import Decoder


@torch.no_grad()
def generate(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    left_pad: Tensor | None = None,
    stop: Stop = NEVER,
    generator: torch.Generator | None = None,
    cache: Cache | None = None,
    **sampling: Any,
) -> Tensor:
    """tokens: (B, T) prompts → (B, N) continuations, N ≤ new_tokens.

    left_pad: (B,), the padding at the left of each prompt. stop: what ends a row; decoding ends with the last row.
    cache: an empty one, where it is not to be the plain one. sampling: fields of `Sampling`; greedy without.
    """
    how = checked(Sampling, sampling)
    chosen = tokens[:, :0]

    def choose(logits: Tensor) -> Tensor:
        return how.choose(logits, torch.cat((tokens, chosen), dim=1), left_pad, generator)

    for token in steps(model, tokens, new_tokens, choose, left_pad=left_pad, cache=cache):
        chosen = torch.cat((chosen, token), dim=1)
        if bool(stop.ended(chosen).all()):
            break
    return stop.cut(chosen)


def steps(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    *,
    left_pad: Tensor | None = None,
    cache: Cache | None = None,
) -> Iterator[Tensor]:
    """(B, 1), one after the other, each chosen from logits: (B, V). tokens: (B, T), the prompts."""
    if cache is None:
        cache = model.new_cache(tokens.shape[0], tokens.shape[1] + new_tokens)
    for _ in range(new_tokens):
        tokens = choose(next_logits(model, tokens, cache, left_pad))
        left_pad = None
        yield tokens


def next_logits(model: Decoder, tokens: Tensor, cache: Cache, left_pad: Tensor | None = None) -> Tensor:
    """(B, V), after the last of these tokens: (B, T)."""
    return model.read_out(model.hidden(tokens, cache, left_pad)[:, -1:])[:, 0]
