"""Longest text that a model can read."""

from __future__ import annotations

from zoo.spec import ModelSpec


def longest_context(spec: ModelSpec) -> int | None:
    """The shorter `longest_text` of decoder and encoder; None for any number of tokens."""
    stacks = [spec] if spec.encoder_spec is None else [spec, spec.encoder_spec]
    return min((end for end in map(longest_text, stacks) if end is not None), default=None)


def depends_on_length(spec: ModelSpec) -> bool:
    """Whether making a row longer, even by padding, changes the results for its first tokens."""
    return any(scheme.by_length for scheme, _ in spec.positions)


def longest_text(spec: ModelSpec) -> int | None:
    """Most tokens that one stack can read, limited by position tables and mixers; None for any number."""
    ends = [scheme.longest for scheme, _ in spec.positions] + [layer.mixer.longest for layer in spec.layers]
    return min((end for end in ends if end is not None), default=None)


def too_short(spec: ModelSpec, context: int) -> str | None:
    """Why a model cannot read texts of `context` tokens; None if it can, or has an encoder, since what that reads
    depends on the objective."""
    most = longest_text(spec) if spec.encoder_spec is None else None
    return None if most is None or most >= context else f"reads {most} tokens at most, not {context}"
