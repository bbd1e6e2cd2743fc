"""The keys of a study that a design reads."""

from __future__ import annotations

from pydantic import Field

from ablate.study.yamlfile import StudyMap
from ablate.wings.designs.design_spec import DesignSpec
from zoo.settings.axis import Spec


class DesignKeys(Spec):
    """Keys of a study."""

    factors: dict[str, StudyMap] = Field(default={})
    """Factors by name, each given as edits of the base by path, which a `design` combines."""
    design: DesignSpec | None = None
    """Combinations of the factors to train, instead of arms, and effects to estimate."""


KEYS = DesignKeys
