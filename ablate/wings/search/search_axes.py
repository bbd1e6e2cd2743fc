"""One axis of a search: its values in optuna, and in the study's edits.

block.ffn: {choice: [swiglu, gelu]}            these values; lists and maps too, such as patterns
block.ffn.d_ff: {ratio: [1x, 8x], step: 0.5}   a multiple of d_model
train.lr: {log: [1e-4, 1e-1]}                  any between, evenly on a logarithmic scale
n_layers: {range: [2, 6]}                      any between; whole numbers when both ends are
d_model: {log: [64, 512]}                      whole numbers, evenly on a logarithmic scale
d_model: {range: [0.5x, 2x], step: 16}         between multiples of the base's value; in short `[0.5x, 2x]`
pattern.0: [block, local]                      one layer's block
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from ablate.study import space
from ablate.study.space import distributions, last, not_empty, spelt, tag
from zoo.settings.axis import Spec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RATIO = re.compile(r"(\d+(?:\.\d+)?)x")


class Choice(Spec):
    """Axis over a list of values."""

    key: ClassVar[str] = "choice"
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
        """The value in the study's edit for optuna's value."""
        return next(value for value in self.choice if label(value) == known)


class Ratio(Spec):
    """Axis over multiples of d_model between two bounds, in steps."""

    key: ClassVar[str] = "ratio"
    ratio: Annotated[tuple[str, str], Field(strict=False)]
    """Smallest and largest multiple of d_model: `[1x, 8x]`."""
    step: PositiveFloat = 0.25
    """Distance between adjacent multiples, in units of d_model."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        not_empty(*self.factors, step=self.step)
        return self

    @property
    def factors(self) -> tuple[float, float]:
        found = [RATIO.fullmatch(text) for text in self.ratio]
        if None in found:
            raise ValueError("both ends must be multiples of d_model, such as 1x and 8x")
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


class Log(space.LogUniform):
    """Logarithmic axis as in tuning, of whole numbers when both ends are; others are rounded to six digits so that a
    promoted study can write what was trained."""

    log: Annotated[tuple[PositiveInt | PositiveFloat, PositiveInt | PositiveFloat], Field(strict=False)]

    @property
    def is_whole(self) -> bool:
        return all(isinstance(end, int) for end in self.log)

    @property
    def distribution(self) -> BaseDistribution:
        if not self.is_whole:
            return super().distribution
        low, high = self.log
        found: BaseDistribution = distributions().IntDistribution(int(low), int(high), log=True)
        return found

    def value(self, known: float) -> float:
        return known if self.is_whole else float(f"{known:.6g}")


class Range(space.Uniform):
    """Range as in tuning, rounded to six digits."""

    def value(self, known: float) -> float:
        return known if isinstance(known, int) else float(f"{known:.6g}")


class Relative(Spec):
    """A number between two multiples of the base's value: a whole number if that is one."""

    key: ClassVar[str] = "relative"
    range: Annotated[tuple[str, str] | None, Field(strict=False)] = None
    """Smallest and largest multiple: `[0.5x, 2x]`."""
    log: Annotated[tuple[str, str] | None, Field(strict=False)] = None
    """Smallest and largest multiple of an axis that is sampled evenly on a logarithmic scale."""
    step: PositiveInt | PositiveFloat | None = None
    """Distance between adjacent values of a `range`; values are multiples of it."""

    @model_validator(mode="after")
    def _multiples(self) -> Self:
        if not all(isinstance(end, str) and RATIO.fullmatch(end) for end in self.ends):
            raise ValueError("both ends must be numbers, or multiples of the base's value such as 0.5x and 2x")
        if self.log and self.step:
            raise ValueError("`log` cannot be combined with `step`")
        return self

    @property
    def ends(self) -> tuple[str, str]:
        return self.range or self.log or ("", "")

    def around(self, base: float) -> Log | Range:
        """The axis for a base's value, between whole numbers or multiples of the step. Raises ValueError."""
        low, high = (float(end[:-1]) * base for end in self.ends)
        step = self.step or (1 if isinstance(base, int) else None)
        if step is not None:
            low, high = math.ceil(low / step - 1e-9) * step, math.floor(high / step + 1e-9) * step
        return Log(log=(low, high)) if self.log else Range(range=(low, high), step=self.step)


def multiples(axis: Axis) -> Relative | None:
    """The range that a list of two multiples may stand for; None for other axes."""
    ends = axis.choice if isinstance(axis, Choice) else ()
    if len(ends) != 2 or not all(isinstance(end, str) and RATIO.fullmatch(end) for end in ends):
        return None
    return Relative(range=(ends[0], ends[1]))


def label(value: Any) -> Any:
    """A value as optuna can store it: scalars as they are, others as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else value


def _tag(value: Any) -> str | None:
    """The kind of axis that a value describes: a range whose ends are text is relative to the base."""
    found = tag(value)
    ends = value.get(found) if isinstance(value, Mapping) and found in ("range", "log") else None
    is_relative = isinstance(ends, list | tuple) and any(isinstance(end, str) for end in ends)
    return "relative" if is_relative else found


Axis = Annotated[
    Annotated[Choice, Tag("choice")]
    | Annotated[Log, Tag("log")]
    | Annotated[Range, Tag("range")]
    | Annotated[Ratio, Tag("ratio")]
    | Annotated[Relative, Tag("relative")],
    Discriminator(
        _tag,
        custom_error_type="axis",
        custom_error_message="must be a list of values, or a map with one of the keys choice, log, range and ratio",
    ),
    BeforeValidator(spelt),
]
AnyAxis = Choice | Log | Range | Ratio
"""Axes from which a search draws, with relative ones resolved on a known base."""
