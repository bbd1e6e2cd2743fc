"""Which models are causal: those that read a text from left to right."""

from __future__ import annotations

from zoo.spec import ModelSpec


class NotCausalError(ValueError):
    """Request that has no meaning for a model of this kind, which is not causal."""


def obstacle(spec: ModelSpec) -> str | None:
    """Why a model cannot say how likely a text is, nor continue it; None where it can."""
    if spec.visible == "all":
        return "is an encoder"
    return None if spec.encoder is None else "has an encoder"


def check_causal(spec: ModelSpec) -> None:
    """Raise NotCausalError for a model that is not causal."""
    found = obstacle(spec)
    if found is not None:
        raise NotCausalError(f"only causal models can be evaluated, and this one {found}")
