"""Decoding."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from zoo.model import Decoder
from zoo.site import Given


@torch.no_grad()
def generate(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    temperature: float = 0.0,
    left_pad: Tensor | None = None,
    generator: torch.Generator | None = None,
    **given: Unpack[Given],
) -> Tensor:
    """tokens: (B, T) prompts → (B, new_tokens) continuations: greedy at temperature 0, otherwise sampled.

    left_pad: (B,), the padding at the left of each prompt. given: what else the prompts are told (`zoo.site.Given`),
    such as `encoder_tokens`, or their `prefix`.
    """
    encoded = given["encoder_tokens"].shape[1] if "encoder_tokens" in given else None
    cache = model.new_cache(tokens.shape[0], tokens.shape[1] + new_tokens, encoder_capacity=encoded)
    chosen: list[Tensor] = []
    for _ in range(new_tokens):
        logits = model(tokens, cache, left_pad, **given)[:, -1]
        left_pad, given = None, Given()
        tokens = _choose(logits, temperature, generator)
        chosen.append(tokens)
    return torch.cat(chosen, dim=1)


def _choose(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """logits: (B, V) → (B, 1)."""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    return torch.multinomial((logits.float() / temperature).softmax(dim=-1), 1, generator=generator)
