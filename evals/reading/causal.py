"""Which models can be evaluated: those that read a text on from left to right."""

from __future__ import annotations

from zoo.spec import ModelSpec


class NotCausalError(ValueError):
    """What is asked has no meaning for a model of this kind."""


def obstacle(spec: ModelSpec) -> str | None:
    """Why a model cannot be asked how likely a text is, or to go on with it; None where it can."""
    if spec.visible == "all":
        return "sees all of a text"
    return None if spec.encoder is None else "has an encoder"


def check_causal(spec: ModelSpec) -> None:
    """Raise NotCausalError for a model that does not read on."""
    found = obstacle(spec)
    if found is not None:
        raise NotCausalError(f"evaluations are those of models that only read on; this one {found}")
