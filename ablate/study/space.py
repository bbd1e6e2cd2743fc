"""Settings that may vary in a study, with their values: `tune.space` and `search.space`, by dotted path.

train.lr: [1e-3, 2e-3, 4e-3]              these values
train.lr: {log: [1e-4, 1e-1]}             any between, evenly on a logarithmic scale
train.warmup: {range: [0, 0.2]}           any between; whole numbers when both ends are
block.mixer.kv_heads: {range: [2, 8], step: 2}
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from zoo.settings.axis import Spec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Scalar = str | int | float | bool | None
Number = int | float
KEYS = ("choice", "log", "range", "ratio")
FIRST_SEED = 1000
"""First seed of runs that choose settings: nothing is compared on them."""
RESERVED_SEEDS = range(FIRST_SEED, 100_000)
"""Seeds for choosing settings, which `seeds: 2000` skips."""


def distributions() -> ModuleType:
    """optuna's distributions, imported late: this is slow, and most commands read a space without drawing from it."""
    import optuna.distributions as found  # noqa: PLC0415 (as above)

    return found


class Categorical(Spec):
    """Axis over a list of values."""

    key: ClassVar[str] = "choice"
    choice: Annotated[tuple[Scalar, ...], Field(min_length=1, strict=False)]
    """Values to try: `[1e-3, 2e-3, 4e-3]`."""

    @model_validator(mode="after")
    def _unlike(self) -> Self:
        seen: set[tuple[bool, Scalar]] = set()
        for value in self.choice:
            known = isinstance(value, bool), value
            if known in seen:
                raise ValueError(f"a value is given twice: {value}")
            seen.add(known)
        return self

    @property
    def distribution(self) -> BaseDistribution:
        found: BaseDistribution = distributions().CategoricalDistribution(self.choice)
        return found

    @property
    def ends(self) -> tuple[Scalar, ...]:
        """Values that must be legal for the whole axis to be legal."""
        return self.choice


class LogUniform(Spec):
    """Any number between two positive ones; its logarithm is uniform."""

    key: ClassVar[str] = "log"
    log: Annotated[tuple[PositiveFloat, PositiveFloat], Field(strict=False)]
    """Smallest and largest value, both positive: `[1e-4, 1e-1]`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        not_empty(*self.log)
        return self

    @property
    def distribution(self) -> BaseDistribution:
        found: BaseDistribution = distributions().FloatDistribution(*self.log, log=True)
        return found

    @property
    def ends(self) -> tuple[float, float]:
        return self.log


class Uniform(Spec):
    """Any number between two; whole numbers when both ends are and no fractional `step` is given."""

    key: ClassVar[str] = "range"
    range: Annotated[tuple[Number, Number], Field(strict=False)]
    """Smallest and largest value: `[2, 8]`; the setting takes whole numbers if both ends are and `step` is no
    fraction."""
    step: PositiveInt | PositiveFloat | None = None
    """Distance between adjacent values, from the smallest up; null for any number between (any whole one if both ends
    are whole)."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        not_empty(*self.range, step=self.step)
        return self

    @property
    def distribution(self) -> BaseDistribution:
        low, high = self.ends
        if all(isinstance(number, int) for number in (low, high, self.step or 1)):
            whole: BaseDistribution = distributions().IntDistribution(int(low), int(high), step=int(self.step or 1))
            return whole
        found: BaseDistribution = distributions().FloatDistribution(low, high, step=self.step)
        return found

    @property
    def ends(self) -> tuple[Number, Number]:
        """Smallest value, and the largest that steps from it reach."""
        low, high = self.range
        return low, high if self.step is None else last(low, high, self.step)


def not_empty(low: float, high: float, step: float | None = None) -> None:
    """Raises ValueError if a range has no values, or its step skips all but the first."""
    if low >= high:
        raise ValueError(f"the range is empty: {low:g} is not below {high:g}")
    if step is not None and last(low, high, step) == low:
        raise ValueError(f"the range has one value, {low:g}: a step of {step:g} leads beyond {high:g}")


def last(low: Number, high: Number, step: Number) -> Number:
    """The highest number up to `high` that steps from `low` reach; `high` itself, unrounded, if they reach it."""
    found = low + math.floor((high - low) / step + 1e-9) * step
    return high if math.isclose(found, high) else found


def tag(value: Any) -> str | None:
    """The key of KEYS that tells the kind of axis of `value`; None if there is none."""
    if isinstance(value, Mapping):
        return next((key for key in KEYS if key in value), None)
    return getattr(value, "key", None)


def spelt(value: Any) -> Any:
    """Expand a list to the map that it is short for. Raises ValueError for a misspelt kind of axis."""
    if isinstance(value, list | tuple):
        return {"choice": value}
    if isinstance(value, Mapping) and tag(value) is None:
        for key in value:
            if near := _meant(key):
                raise ValueError(f"unknown kind of axis {key} (did you mean '{near}'?)")
    return value


def _meant(key: str) -> str | None:
    """The kind of axis that `key` misspells: with letters exchanged, or one wrong in five; None if there is none."""
    exchanged = (kind for kind in KEYS if sorted(kind) == sorted(key))
    return next(exchanged, None) or next(iter(difflib.get_close_matches(key, KEYS, n=1, cutoff=0.8)), None)


Axis = Annotated[
    Annotated[Categorical, Tag("choice")] | Annotated[LogUniform, Tag("log")] | Annotated[Uniform, Tag("range")],
    Discriminator(
        tag,
        custom_error_type="axis",
        custom_error_message="must be a list of values, or a map with one of the keys choice, log and range",
    ),
    BeforeValidator(spelt),
]


def axes(nested: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The axes in nested maps, by dotted path."""
    for key, value in nested.items():
        path = f"{prefix}{key}"
        if not isinstance(value, Mapping) or not value:
            yield path, value
            continue
        # `block.ffn: {choice: …}` beside `block.ffn.d_ff: …`
        if tag(value) is not None or any(_meant(k) and isinstance(v, list | tuple) for k, v in value.items()):
            deeper = {k: v for k, v in value.items() if not _meant(k) and isinstance(v, Mapping | list | tuple)}
            yield path, {k: v for k, v in value.items() if k not in deeper}
            yield from axes(deeper, f"{path}.")
        else:
            yield from axes(value, f"{path}.")


BY_PATH = BeforeValidator(lambda value: dict(axes(value)) if isinstance(value, Mapping) else value)
Space = Annotated[dict[str, Axis], BY_PATH, Field(min_length=1)]
