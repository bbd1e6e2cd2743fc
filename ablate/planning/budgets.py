"""Steps that a budget pays for, and the value of a knob that matches a number of parameters. Pure arithmetic."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from statistics import fmean
from typing import NamedTuple

from ablate.store.documents import JsonObject, RunNumerics
from ablate.study.budget_spec import ParameterMatch
from ablate.training.lora import flops_change
from ablate.training.spec import TrainSpec, timeless
from zoo.costs import Cost, cost
from zoo.errors import SpecError
from zoo.settings.identity import identity_of
from zoo.settings.registry import versions_of
from zoo.spec import ModelSpec

TOLERANCE = 0.005
"""Parameters that differ by at most this share are matched."""
LARGEST = 2**24
"""No knob is turned further."""
REFUSALS = 1024
"""After so many values in a row that a model refuses, no further one is expected to be legal."""

Count = Callable[[int], int | None]
"""Value of a knob → parameters; None where the model refuses the value."""


@dataclass(frozen=True)
class Workload:
    """Work of a training step."""

    spec: ModelSpec
    train: TrainSpec
    numerics: RunNumerics

    @property
    def identity(self) -> JsonObject:
        """All that decides how long a step takes on a device, but what equals its first default."""
        plugins = versions_of(self.spec, self.train)
        train = {name: value for name, value in identity_of(self.train).items() if name not in timeless()}
        told = {"model": self.spec.identity(), "train": train, "numerics": identity_of(self.numerics)}
        return {**({"plugins": dict(plugins)} if plugins else {}), **told}


class StepTime(NamedTuple):
    """Measured seconds of a training step. Workloads with one `calibration` have one time, and no error between them;
    for `error` and `processes` see `CalibrationDocument`."""

    seconds: float
    calibration: str
    error: float | None = None
    processes: int | None = None


Clock = Callable[[Sequence[Workload]], Sequence[StepTime]]
"""The time of a training step of each workload."""


class MatchError(ValueError):
    """No value of a knob matches the parameters. The text says why, of the knob."""


def training_cost(train: TrainSpec, spec: ModelSpec, widths: Sequence[int], teacher: ModelSpec | None = None) -> Cost:
    """Costs at the context. FLOPs per token are a mean over `widths`, the row widths that training cycles through, and
    have among them a teacher's forward pass, and a token's share of what a step computes once for all rows."""
    tokens = train.batch * train.context
    costs = {width: train.objective.cost(spec, width) for width in set(widths)}
    per_token = {width: each.flops_per_token for width, each in costs.items()}
    whole = train.objective.cost(spec, train.context)
    change = fmean(costs[width].flops_per_step for width in widths) / tokens
    if train.lora is not None:
        change += flops_change(spec, train.lora)
    if teacher is not None:
        taught = {width: train.objective.cost(teacher, width) for width in set(widths)}
        change += fmean(taught[width].flops_per_token_forward for width in widths)
        change += fmean(taught[width].flops_per_pass for width in widths) / tokens
    return replace(
        whole,
        flops_per_token=fmean(per_token[width] for width in widths) + change,
        flops_per_token_square=whole.flops_per_token_square + change,
        flops_per_token_executed=whole.flops_per_token_executed + change,
    )


def price_of_step(kind: str, train: TrainSpec, flops_per_token: float, seconds_per_step: float | None) -> float:
    """Cost of one training step against a budget in `kind`: flops, tokens or seconds."""
    tokens = train.batch * train.context
    prices = {"flops": tokens * flops_per_token, "tokens": tokens, "seconds": seconds_per_step}
    price = prices[kind]
    if price is None:
        raise ValueError("a budget in seconds needs the measured time of a step")
    return price


def parameters(costs: Cost, match: ParameterMatch) -> int:
    """The parameters that `match` counts."""
    return costs.params - costs.params_embedding * (match.count == "non_embedding")


def solve(spec: ModelSpec, target: int, match: ParameterMatch) -> tuple[ModelSpec, dict[str, int]]:
    """The spec with the knob at the legal value that comes nearest to `target` parameters, and that edit.

    A spec that is at least as near as it stands is left as it is, with no edit.

    Raises:
        MatchError: the spec has no such knob, the knob is not a number or does not change the parameters, or the
            nearest value misses by more than `TOLERANCE`.
    """

    refusals: dict[int, str] = {}

    @cache
    def count(value: int) -> int | None:
        try:
            return parameters(cost(spec.edit({match.knob: value})), match)
        except SpecError as error:
            refusals[value] = error.reason if error.path == match.knob else str(error)
            return None

    value = nearest(count, target, match.step)
    if value is None:
        raise MatchError(refusals[match.step])
    solved = spec.edit({match.knob: value})
    found, own = (parameters(cost(each), match) for each in (solved, spec))
    kept = abs(own - target) <= abs(found - target)
    if abs((own if kept else found) - target) > TOLERANCE * target:
        miss = 100 * (found / target - 1)
        raise MatchError(f"cannot give {target:,} parameters: the nearest, {value}, gives {found:,} ({miss:+.1f} %)")
    return (spec, {}) if kept else (solved, {match.knob: value})


def nearest(count: Count, target: int, step: int = 1) -> int | None:
    """The legal multiple of `step` whose count is nearest to `target`, the smaller of two; None where none is legal.

    The count has to rise, or to fall, with the value throughout: a doubling finds an upper end, a bisection the place.

    Raises:
        MatchError: several values are legal, and the count is the same for all.
    """

    def legal(values: Iterable[int]) -> int | None:
        return next((value for value in islice(values, REFUSALS) if count(value) is not None), None)

    def miss(value: int) -> int:
        found = count(value)
        assert found is not None  # asked of legal values only
        return found - target

    first = legal(itertools.count(step, step))
    if first is None:
        return None
    last = _upper_end(first, step, legal, miss)
    if last == first:
        return first
    if miss(last) == miss(first):
        raise MatchError("does not change the parameters")
    sign = 1 if miss(last) > miss(first) else -1
    values = range(first, last + 1, step)
    index = bisect_left(values, 0, key=lambda value: sign * miss(legal(range(value, last + 1, step)) or last))
    above = legal(values[index:]) or last
    below = legal(reversed(values[:index])) or first
    return min(below, above, key=lambda value: (abs(miss(value)), value))


def _upper_end(first: int, step: int, legal: Callable[[Iterable[int]], int | None], miss: Callable[[int], int]) -> int:
    """A legal value past the target, or the last one before values end or begin to lead away from it."""
    last, above = first, miss(first) > 0
    while last < LARGEST and (miss(last) > 0) == above:
        beyond = itertools.count(2 * last, step)
        further = legal(beyond) or legal(range(2 * last - step, last, -step))
        if further is None:
            break
        if (miss(further) > 0) == above and abs(miss(further)) > abs(miss(last)):
            break
        last = further
    return last
