"""The section `search` of a study: what may vary, what for, and how it is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from ablate.study.search_axes import Axis
from ablate.study.search_constraints import Constraint
from ablate.study.space import FIRST_SEED, axes, distributions
from zoo.axis import Spec
from zoo.errors import did_you_mean

Direction = Literal["minimize", "maximize"]

DIRECTIONS: dict[str, Direction] = {
    "loss": "minimize",
    "bits_per_byte": "minimize",
    "accuracy": "maximize",
    "tokens_per_second": "maximize",
    "decode_tokens_per_second": "maximize",
    "prefill_tokens_per_second": "maximize",
    "kv_bytes_per_token": "minimize",
    "peak_memory_bytes": "minimize",
    "parameters": "minimize",
    "flops_per_token": "minimize",
}
"""Objectives that need no word on which way is better."""
MEASURED = ("decode_tokens_per_second", "prefill_tokens_per_second")
"""Those that the measurement of a run has: at its longest context and smallest batch."""
OF_CACHES = ("decode_tokens_per_second", "kv_bytes_per_token")
"""Those that an encoder has not."""


def _objectives(value: Any) -> Any:
    """A list of names and of `{name: direction}`, or one name, as a map from name to direction."""
    found: dict[str, object] = {}
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        pairs = item.items() if isinstance(item, Mapping) else [(item, DIRECTIONS.get(str(item)))]
        for name, direction in pairs:
            if name in found:
                raise ValueError(f"{name} is given twice")
            if name not in DIRECTIONS and "." not in str(name):
                near = did_you_mean(str(name), DIRECTIONS) or f": one of {', '.join(DIRECTIONS)}, or task.metric"
                raise ValueError(f"unknown objective '{name}'{near}")
            if direction is None:
                raise ValueError(f"{name}: say which way is better, {{{name}: maximize}} or minimize")
            found[str(name)] = direction
    return found


WrittenObjectives = str | list[str | dict[str, Direction]] | dict[str, Direction]
"""Objectives as a study may write them."""
Objectives = Annotated[
    dict[str, Direction], BeforeValidator(_objectives, json_schema_input_type=WrittenObjectives), Field(min_length=1)
]
SearchSpace = Annotated[
    dict[str, Axis],
    BeforeValidator(lambda value: dict(axes(value)) if isinstance(value, Mapping) else value),
    Field(min_length=1),
]


class Fidelity(Spec):
    """Short runs first: every trial gets the share `start` of the budget, and the best 1/`factor` of those that reached
    a share are trained at `factor` times as much, by non-dominated rank. Asynchronous successive halving, with several
    objectives as in Schmucker et al. 2021, arXiv:2106.12639. Each share is a run with a schedule of its own.
    """

    start: Annotated[float, Field(gt=0, lt=1)] = 1 / 9
    """Share of the budget that every trial gets first."""
    factor: Annotated[int, Field(ge=2)] = 3
    """Ratio η of successive shares; one in η trials goes on to the next."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the budget, ending with the whole."""
        found = [self.start]
        while found[-1] * self.factor < 1 - 1e-9:
            found.append(found[-1] * self.factor)
        return (*found, 1.0)


class SearchSpec(Spec):
    """Space that `ablate search` samples around the base, and its objectives."""

    space: SearchSpace
    """Settings that may vary, by path. A path that a model does not have is not sampled for it."""
    objectives: Objectives = Field(default={"loss": "minimize"})
    """One for a best trial, several for a front. A score of an evaluation is `task.metric` with its direction."""
    constraints: Annotated[tuple[Constraint, ...], Field(strict=False)] = ()
    """Conditions checked before anything is trained: `block.mixer.kv_heads divides block.mixer.heads`,
    `cache_bytes(8192) <= 64 MB`, `parameters within 2 % of base`."""
    trials: PositiveInt = 60
    """Number of settings that are tried."""
    sampler: Literal["tpe", "gp", "cmaes", "nsga2", "nsga3", "random", "grid"] = "tpe"
    """optuna's sampler: `tpe` (tree-structured Parzen estimator), `gp` (Gaussian process), `cmaes` (one objective),
    `nsga2`, `nsga3`, `random`, or `grid` (every combination)."""
    pruner: Literal["asha", "hyperband", "median", "wilcoxon"] | None = None
    """Rule that stops a trial early, judging by its validation losses; only if the loss is the single objective."""
    fidelity: Fidelity | None = None
    """Short runs first; for several objectives too."""
    seeds: PositiveInt = 1
    """A trial's score is the mean over this many seeds, from 1000 up; promoted trials are trained with fresh seeds."""

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_SEED, FIRST_SEED + self.seeds))

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the budget at which trials are trained."""
        return self.fidelity.shares if self.fidelity else (1.0,)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.pruner and tuple(self.objectives) != ("loss",):
            raise ValueError("pruner: only a search for the loss alone can be pruned; several objectives take fidelity")
        if self.pruner and (self.seeds > 1 or self.fidelity):
            raise ValueError("pruner: goes with one seed and without fidelity")
        if self.sampler == "cmaes" and len(self.objectives) > 1:
            raise ValueError("sampler: cmaes takes one objective; several take tpe, gp, nsga2 or nsga3")
        for path, axis in self.space.items():
            if self.sampler == "grid" and _is_continuous(axis):
                raise ValueError(f"sampler: a grid needs values: {path} has a range without a step")
        return self


def _is_continuous(axis: Axis) -> bool:
    spread = axis.distribution
    return isinstance(spread, distributions().FloatDistribution) and spread.step is None
