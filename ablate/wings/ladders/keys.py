"""The key of a study that lists the rungs of a ladder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeGuard

from pydantic import BeforeValidator, Field, WithJsonSchema

from ablate.study.layers import LayerRule, replaced
from ablate.study.yamlfile import StudyMap
from zoo.settings.axis import Spec
from zoo.settings.explain import yaml


def _rung(value: Any) -> Any:
    """A rung: edits, or a share of the budget with the same model. Raises ValueError."""
    if isinstance(value, Mapping) or is_share(value):
        return value
    raise ValueError(f"must be a map of edits, or a share of the budget between 0 and 1, not {yaml(value)}")


def is_share(value: Any) -> TypeGuard[float]:
    """Whether a value is a number between 0 and 1."""
    return isinstance(value, float) and 0 < value < 1


Rung = Annotated[
    StudyMap | float,
    BeforeValidator(_rung),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}]}),
]


class LadderKeys(Spec):
    """Keys of a study."""

    ladder: Annotated[dict[str, Rung] | None, LayerRule(replaced)] = Field(default={})
    """Smaller models and shorter runs of the same question, each by edits of base, budget and train, or by a share of
    the budget. The last one is compared. Null: none, whatever the scale or the file has."""


KEYS = LadderKeys
