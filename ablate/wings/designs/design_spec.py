"""The sections `grid`, and `design`: two-level `factors`, screened by runs of which each informs every effect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Literal

from pydantic import Field

from ablate.study.layers import LayerRule, by_path, replaced
from ablate.study.space import Scalar
from ablate.study.yamlfile import StudyMap
from ablate.wings.designs.factorial import Design, Effect, design_for
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec

FEWEST_FACTORS = 2
FEWEST_SPARE = 4
"""Least number of contrasts without an effect, from whose scatter the error of the effects is estimated."""
TIMES = re.compile(r"\s+[×x*]\s+")

Interaction = Annotated[str, Field(pattern=r"^\S+\s+[×x*]\s+\S+$")]


class DesignSpec(Spec):
    """Combinations of the factors that are trained, and effects that are estimated from them."""

    factorial: Literal["full"] | Annotated[int, Field(ge=2)]
    """`full` for all combinations, or their number, a power of two: the best fraction of that size is used."""
    interactions: Annotated[tuple[Interaction, ...], Field(strict=False)] = ()
    """Pairs of factors, `gated × qk_norm`, whose interaction is estimated and judged with the main effects."""
    correction: Literal["holm", "benjamini_hochberg"] = "holm"
    """`holm`: at most 5 % of screens have any false positive. `benjamini_hochberg`: at most 5 % of the effects found
    are expected to be false positives."""


class DesignKeys(Spec):
    """Keys of a study."""

    grid: Annotated[dict[str, Annotated[list[Scalar], Field(min_length=1)]], LayerRule(replaced, spelled=by_path)] = (
        Field(default={})
    )
    """Values per path: every arm is trained with every combination."""
    factors: dict[str, StudyMap] = Field(default={})
    """Factors by name, each given as edits of the base by path, which a `design` combines."""
    design: DesignSpec | None = None
    """Combinations of the factors to train, instead of arms, and effects to estimate."""


KEYS = DesignKeys


class DesignError(Exception):
    """An impossible design, with the setting below `design` that causes it."""

    def __init__(self, setting: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.setting, self.reason = setting, reason


@dataclass(frozen=True)
class Screen:
    """The design of a study, the first run of which is the base. `factors` in the order of the study."""

    factors: tuple[str, ...]
    design: Design
    interactions: tuple[Effect, ...]
    correction: Literal["holm", "benjamini_hochberg"]

    @cached_property
    def runs(self) -> tuple[tuple[str, ...], ...]:
        """The factors at level 1 in each run, in the order of the design."""
        return tuple(
            tuple(name for name in self.factors if levels[self.design.factors.index(name)] > 0)
            for levels in self.design.levels
        )

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Effects that are estimated and judged."""
        return *((factor,) for factor in self.factors), *self.interactions

    @property
    def spare(self) -> int:
        """Number of contrasts between runs that estimate no effect."""
        return len(self.runs) - 1 - len(self.effects)

    def aliases(self, effect: Effect) -> tuple[Effect, ...]:
        """Effects of at most two factors that it is aliased with."""
        found = (tuple(sorted(alias, key=self.factors.index)) for alias in self.design.aliases(effect))
        return tuple(sorted(found, key=lambda alias: [self.factors.index(name) for name in alias]))


@cache
def screen(spec: DesignSpec, factors: tuple[str, ...]) -> Screen:
    """The best design for these factors. Raises DesignError."""
    if len(factors) < FEWEST_FACTORS:
        raise DesignError(("factorial",), f"needs at least {FEWEST_FACTORS} factors in `factors`")
    interactions = tuple(_interaction(text, place, factors) for place, text in enumerate(spec.interactions))
    for place, effect in enumerate(interactions):
        if effect in interactions[:place]:
            raise DesignError(("interactions", str(place)), f"'{spec.interactions[place]}' is given twice")
    runs = 2 ** len(factors) if spec.factorial == "full" else spec.factorial
    try:
        found = design_for(factors, runs, interactions)
    except ValueError as error:
        raise DesignError(("factorial",), str(error)) from error
    return Screen(factors, found, interactions, spec.correction)


def _interaction(text: str, place: int, factors: Sequence[str]) -> Effect:
    names = TIMES.split(text)
    unknown = [name for name in names if name not in factors]
    reason = None
    if unknown:
        reason = f"unknown factor '{unknown[0]}'" + did_you_mean(unknown[0], factors)
    elif len(set(names)) < len(names):
        reason = "needs two different factors"
    if reason is not None:
        raise DesignError(("interactions", str(place)), f"'{text}': {reason}")
    return tuple(sorted(names, key=factors.index))


def named(effect: Sequence[str]) -> str:
    """`gated × qk_norm`."""
    return " × ".join(effect)
