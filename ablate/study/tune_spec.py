"""The section `tune`: tuning of each arm's learning rate and other settings.

tune: auto                                     each arm's learning rate: five around the arm's own (the default)
tune: {seeds: 3, fraction: 0.5}                the same, with more seeds and a longer first pass
tune: {space: {train.lr: [1e-3, 2e-3, 4e-3]}}  these settings
tune: {carried: studies/LOG.md}                nothing: the file has rates that were tuned before, and says where
tune: off                                      nothing: the rates are part of the question
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PositiveInt, Tag, WithJsonSchema, model_validator

from ablate.study.layers import Layer, LayerRule, space_by_path
from ablate.study.space import FIRST_SEED, Categorical, Space
from store.documents.tuning import RATE
from zoo.settings.axis import Spec
from zoo.settings.edits import merge
from zoo.settings.explain import unknown

COARSE = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of an arm's own learning rate that `auto` tries first. Losses at rates further apart than a factor of 2
leave too much to interpolation (`reports.judge.noise.curve`)."""
FINE = (0.5, 1.0, 2.0)
"""Multiples of the best rate of short runs that are tried at full length."""
BELOW = (0.5, 0.5**0.5, 1.0)
"""Multiples instead of `FINE` if a seed failed at the next higher rate."""
SHORT = 0.25
TRIALS_PER_AXIS = 8
SAMPLED = ("trials", "sampler", "at_once")
"""Settings of a search over ranges."""
STEPPED = ("extend", "refine")
"""Settings of a grid."""


@dataclass(frozen=True)
class Pass:
    """Tuning runs of one length: their share of the study's budget, and their seeds."""

    fraction: float
    seeds: tuple[int, ...]


class TuneSpec(Spec):
    """Tuning of each arm before it is compared: of its learning rate, unless `space` says otherwise.

    A learning rate is tuned in two passes. Short runs with one seed locate the best rate roughly. Then runs at full
    length, with `seeds` seeds, try that rate, half of it and twice it, and decide: the best rate depends on the length,
    and differently for each arm. If a short run failed at the next higher rate, two lower ones are tried instead. If no
    lower, or no higher, rate is clearly worse than the best, the next one outwards is tried, up to `extend` times. If a
    curve through the losses suggests a better rate in between, up to `refine` more are tried. The chosen rate is the
    one of those tried with the lowest expected loss.

    Other settings, or several together, are tuned in one pass, and those with the lowest validation loss are chosen. If
    the best value lies at the edge of a list, the list is extended.
    """

    space: Space | None = None
    """Values by path (default: five values of `train.lr`, a factor of 2 apart, around the arm's own)."""
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the study's budget that a run of the first pass may spend (default: 0.25 of a learning rate alone, else
    1). With 1 there is no second pass."""
    seeds: PositiveInt = 2
    """Number of tuning seeds, from 1000 up: an arm is not compared on the seeds that chose its settings."""
    extend: Annotated[int, Field(ge=0)] = 6
    """Number of values that may be added beyond each end of a list of numbers."""
    refine: Annotated[int, Field(ge=0)] = 3
    """Number of rates that may be tried between the best one and its neighbours."""
    trials: PositiveInt | None = None
    """Number of settings to try if the space has ranges (default: 8 per axis)."""
    sampler: Literal["tpe", "random"] = "tpe"
    """optuna's sampler of settings if the space has ranges: `tpe` (tree-structured Parzen estimator) or `random`."""
    at_once: PositiveInt = 4
    """Number of settings of an arm that the sampler proposes before it gets their losses."""
    known: bool = True
    """Whether the search for a learning rate begins at full length around the best rate of a like arm, if the store or
    the study's recorded result has one for the baseline."""

    @model_validator(mode="after")
    def _heard(self) -> Self:
        """Refuse settings that this way of tuning does not use."""
        deaf, words = (
            (SAMPLED, "without a range in space, every combination is tried")
            if self.is_grid
            else (STEPPED, "with a range in space, values are sampled")
        )
        for name in deaf:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does not apply here: {words}")
        return self

    @property
    def is_grid(self) -> bool:
        """Whether every axis is a list, so that all combinations are tried."""
        return self.space is None or all(isinstance(axis, Categorical) for axis in self.space.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the settings that are tuned."""
        return (RATE,) if self.space is None else tuple(self.space)

    @property
    def is_rate_alone(self) -> bool:
        """Whether only the learning rate is tuned, over a list."""
        return self.is_grid and self.paths == (RATE,)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Passes in order; the last decides."""
        fraction = self.fraction or (SHORT if self.is_rate_alone else 1.0)
        if self.is_rate_alone and fraction < 1:
            return Pass(fraction, self.seed_numbers[:1]), Pass(1.0, self.seed_numbers)
        return (Pass(fraction, self.seed_numbers),)

    @property
    def count(self) -> int:
        """Number of settings that the sampler tries."""
        return self.trials or TRIALS_PER_AXIS * len(self.paths)

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_SEED, FIRST_SEED + self.seeds))

    def space_around(self, rate: float) -> Space:
        """The space for an arm with this learning rate."""
        if self.space is not None:
            return self.space
        return rates_around(rate, COARSE)


def rates_around(rate: float, factors: Sequence[float]) -> Space:
    """The space of these multiples of a learning rate."""
    return rates_alone(rates_times(rate, factors))


def rates_times(rate: float, factors: Sequence[float]) -> tuple[float, ...]:
    """These multiples of a learning rate, to six digits."""
    return tuple(float(f"{factor * rate:.6g}") for factor in factors)


def rates_alone(rates: Sequence[float]) -> Space:
    """The space of these learning rates."""
    return {RATE: Categorical(choice=tuple(rates))}


class Carried(Spec):
    """Learning rates in the study file that were tuned earlier; nothing is tuned."""

    carried: str | None = None
    """Location of the tuning curves and of the command that produced them."""


WORDS: dict[str, Any] = {"auto": {}, "carried": {"carried": None}, "off": None}


def _long(value: Any) -> Any:
    """Expand one of WORDS; maps and null stay as they are. Raises ValueError for anything else."""
    if isinstance(value, str):
        if value not in WORDS:
            raise ValueError(unknown("way of tuning", value, [*WORDS]))
        return WORDS[value]
    if value is False:  # as older YAML reads `off`
        return WORDS["off"]
    if value is None or isinstance(value, Mapping | Spec):
        return value
    raise ValueError(f"must be {', '.join(WORDS)}, or a map")


def _tag(value: Any) -> str:
    if value is None:
        return "untuned"
    return "given" if isinstance(value, Carried) or (isinstance(value, Mapping) and "carried" in value) else "tuned"


def _layered(old: Any, new: Any, _layer: Layer) -> Any:
    """A word replaces the value of earlier layers, a map edits it; a new space replaces the whole space."""
    if not isinstance(new, Mapping) or "carried" in new or not isinstance(old, Mapping) or "carried" in old:
        return new
    return merge({key: value for key, value in old.items() if key != "space" or "space" not in new}, new)


Tune = Annotated[
    Annotated[TuneSpec, Tag("tuned")]
    | Annotated[Carried, Tag("given")]
    | Annotated[None, WithJsonSchema({"enum": [*WORDS, False, None]}), Tag("untuned")],
    Discriminator(_tag),
    BeforeValidator(_long),
    LayerRule(_layered, spelled=space_by_path),
]
