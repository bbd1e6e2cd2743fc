"""One axis of a search: its values as optuna knows them, and as the study's edits spell them.

block.ffn: {choice: [swiglu, gelu]}            these values; lists and maps too, such as patterns
block.ffn.d_ff: {ratio: [1x, 8x], step: 0.5}   a multiple of d_model
train.lr: {log: [1e-4, 1e-1]}                  any between, evenly on a logarithmic scale
n_layers: {range: [2, 6]}                      any between; whole numbers when both ends are
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, Tag, model_validator

from ablate.study import space
from ablate.study.space import distributions, last, not_empty, spelt, tag
from zoo.axis import Spec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RATIO = re.compile(r"(\d+(?:\.\d+)?)x")


class Choice(Spec):
    """One of these values."""

    choice: Annotated[tuple[Any, ...], Field(min_length=1, strict=False)]
    """Values to choose from, each a value of the setting or a whole part: `[rmsnorm, layernorm]`."""

    @model_validator(mode="after")
    def _different(self) -> Self:
        labels = [label(value) for value in self.choice]
        twice = next((value for value in labels if labels.count(value) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is given twice")
        return self

    @property
    def distribution(self) -> BaseDistribution:
        found: BaseDistribution = distributions().CategoricalDistribution(tuple(map(label, self.choice)))
        return found

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.choice

    def value(self, known: Any) -> Any:
        """The study's edit for optuna's value."""
        return next(value for value in self.choice if label(value) == known)


class Ratio(Spec):
    """A multiple of d_model between two, in steps."""

    ratio: Annotated[tuple[str, str], Field(strict=False)]
    """Smallest and largest multiple of d_model: `[1x, 8x]`."""
    step: PositiveFloat = 0.25
    """Distance of neighbouring multiples, in units of d_model."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        not_empty(*self.factors, step=self.step)
        return self

    @property
    def factors(self) -> tuple[float, float]:
        found = [RATIO.fullmatch(text) for text in self.ratio]
        if None in found:
            raise ValueError("the ends of a ratio are multiples of d_model such as 1x and 8x")
        low, high = (float(match[1]) for match in found if match)
        return low, high

    @property
    def distribution(self) -> BaseDistribution:
        low, high = self.factors
        found: BaseDistribution = distributions().FloatDistribution(low, last(low, high, self.step), step=self.step)
        return found

    @property
    def ends(self) -> tuple[str, str]:
        return self.ratio

    def value(self, known: float) -> str:
        return f"{known:.6g}x"


class Log(space.Log):
    """Logarithmic axis as in tuning, rounded to six digits so that a promoted study can write what was trained."""

    def value(self, known: float) -> float:
        return float(f"{known:.6g}")


class Range(space.Range):
    """Range as in tuning, rounded to six digits."""

    def value(self, known: float) -> float:
        return known if isinstance(known, int) else float(f"{known:.6g}")


def label(value: Any) -> Any:
    """A value as optuna can keep it: scalars as they are, others as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else value


Axis = Annotated[
    Annotated[Choice, Tag("choice")]
    | Annotated[Log, Tag("log")]
    | Annotated[Range, Tag("range")]
    | Annotated[Ratio, Tag("ratio")],
    Discriminator(
        tag,
        custom_error_type="axis",
        custom_error_message="expected a list of values, or a map with one of the keys choice, log, range and ratio",
    ),
    BeforeValidator(spelt),
]
AnyAxis = Choice | Log | Range | Ratio
