"""Check that a model is causal: reads a text from left to right."""

from __future__ import annotations

from zoo.spec import ModelSpec


class NotCausalError(ValueError):
    """A request is meaningless for a model that is not causal."""


def obstacle(spec: ModelSpec) -> str | None:
    """Reason why a model can neither give a text's likelihood nor continue it; None if it can."""
    if spec.visible == "all":
        return "is an encoder"
    return None if spec.encoder is None else "has an encoder"


def check_causal(spec: ModelSpec) -> None:
    """Raise NotCausalError for a model that is not causal."""
    found = obstacle(spec)
    if found is not None:
        raise NotCausalError(f"only causal models can be evaluated, but this one {found}")
