"""Inputs that make up a context, by kind of model, when speed is measured."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.lengths import longest_context, longest_text
from zoo.site import Given
from zoo.spec import ModelSpec


def convention(spec: ModelSpec) -> str | None:
    """Sentence that defines a context in measured speeds and bytes; None for a causal decoder."""
    if spec.encoder is not None:
        return "With an encoder, the context is the encoder's tokens; a full cache also holds as many decoder tokens."
    return {
        "all": "Encoders generate no tokens: they have no KV cache, and their time is that of one forward pass.",
        "prefix": "For prefix LMs, the context is the prefix.",
        "causal": None,
    }[spec.visible]


def prompt(spec: ModelSpec, tokens: Tensor, written: int = 1) -> tuple[Tensor, Given]:
    """tokens: (B, S), a context → the tokens that the decoder reads, and the other inputs.

    A decoder reads the context; for a prefix LM it is the prefix. With an encoder, the encoder reads the context, and
    the decoder its first `written` tokens, since any tokens will do.
    """
    if spec.encoder is not None:
        return tokens[:, :written], {"encoder_tokens": tokens}
    if spec.visible == "prefix":
        return tokens, {"prefix": torch.full(tokens.shape[:1], tokens.shape[1], device=tokens.device)}
    return tokens, {}


def beyond_positions(spec: ModelSpec, context: int, more: int = 0) -> str | None:
    """Reason why a model cannot read a context, or its decoder not `more` tokens after as many; None if it can."""
    end = longest_text(spec) if more else longest_context(spec)
    return None if end is None or context + more <= end else f"reads at most {end} tokens"
