"""The section `search` of a study: the space, the objectives and the method.

Samplers and pruners have optuna's names, with optuna's own settings:

    sampler: tpe
    sampler: {kind: tpe, n_startup_trials: 20}     any argument of optuna.samplers.TPESampler
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from ablate.study.layers import LayerRule, space_by_path
from ablate.study.space import BY_PATH, FIRST_SEED, distributions
from ablate.wings.search.search_axes import Axis, Relative
from ablate.wings.search.search_constraints import Constraint
from store.documents import JsonObject
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson
from zoo.settings.explain import unknown
from zoo.settings.identity import FirstDefault

SamplerKind = Literal["auto", "tpe", "gp", "cmaes", "nsga2", "nsga3", "random", "grid"]
PrunerKind = Literal["auto", "asha", "hyperband", "median"]
SAMPLERS = {
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "nsga2": "NSGAIISampler",
    "nsga3": "NSGAIIISampler",
    "random": "RandomSampler",
}
PRUNERS = {
    "asha": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "median": "MedianPruner",
}
OURS = ("seed", "constraints_func")
"""Arguments of optuna's classes that `search.seed` and `search.constraints` set."""


class SamplerSpec(Spec):
    """A sampler and its settings."""

    kind: SamplerKind = "auto"
    """Name of the sampler."""
    settings: JsonObject = Field(default={})
    """Arguments of optuna's sampler, by name."""

    @model_validator(mode="after")
    def _known(self) -> SamplerSpec:
        _check(self.kind, self.settings, SAMPLERS, "samplers")
        return self


class PrunerSpec(Spec):
    """A pruner and its settings."""

    kind: PrunerKind
    """Name of the pruner."""
    settings: JsonObject = Field(default={})
    """Arguments of optuna's pruner, by name."""

    @model_validator(mode="after")
    def _known(self) -> PrunerSpec:
        _check(self.kind, self.settings, PRUNERS, "pruners")
        return self


def _check(kind: str, settings: JsonObject, classes: Mapping[str, str], module: str) -> None:
    """Raises ValueError for a setting that optuna's class does not have. Imports optuna only if there are settings."""
    if not settings:
        return
    if kind not in classes:
        raise ValueError(f"{kind} takes no settings")
    cls = getattr(importlib.import_module(f"optuna.{module}"), classes[kind])
    known = [name for name in inspect.signature(cls).parameters if name not in OURS]
    for name in settings:
        if name not in known:
            near = did_you_mean(name, known) or f": one of {', '.join(known)}"
            raise ValueError(f"optuna's {classes[kind]} has no setting '{name}'{near}")


def _spelt(what: str, kinds: Sequence[str], written: Any) -> BeforeValidator:
    """Validator that accepts a kind, or a flat map. written: type of these forms, for the JSON Schema."""

    def spelt(value: Any) -> Any:
        """A name, or a map of a kind and its settings, in the form of the spec. Raises ValueError."""
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            return value
        if value.get("kind") not in kinds:
            raise ValueError(unknown(what, value.get("kind"), kinds))
        given = {name: each for name, each in value.items() if name not in ("kind", "settings")}
        return {"kind": value["kind"], "settings": {**value.get("settings", {}), **given}}

    return BeforeValidator(spelt, json_schema_input_type=written)


Sampler = Annotated[SamplerSpec, _spelt("sampler", get_args(SamplerKind), SamplerKind | JsonObject)]
Pruner = Annotated[PrunerSpec, _spelt("pruner", get_args(PrunerKind), PrunerKind | JsonObject)]


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
"""Objectives with a default direction."""
MEASURED = ("decode_tokens_per_second", "prefill_tokens_per_second")
"""Objectives from a run's measurement: at its longest context and smallest batch."""
OF_CACHES = ("decode_tokens_per_second", "kv_bytes_per_token")
"""Objectives that an encoder does not have."""
FEWEST_VALIDATIONS = 3
"""Least number of validations of a run for a pruner to be of use."""
NOT_OF_A_SCORE = ("trials", "sampler", "pruner", "seed", "timeout", "hours", "enqueue", "confirm")
"""Settings that affect which trials there are, but not their scores: they may change while a search is under way."""


def _objectives(value: Any) -> Any:
    """Objectives as a map from name to direction, from a name or a list of names and of `{name: direction}`."""
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
                raise ValueError(f"{name} needs a direction: {{{name}: maximize}} or {{{name}: minimize}}")
            found[str(name)] = direction
    return found


WrittenObjectives = str | list[str | dict[str, Direction]] | dict[str, Direction]
"""Objectives as a study may write them."""
Objectives = Annotated[
    dict[str, Direction], BeforeValidator(_objectives, json_schema_input_type=WrittenObjectives), Field(min_length=1)
]
SearchSpace = Annotated[dict[str, Axis], BY_PATH, Field(min_length=1)]


class Fidelity(Spec):
    """Short runs first: every trial gets the share `start` of the budget, and the best 1/`factor` of those that reached
    a share are trained at `factor` times as much, by non-dominated rank. Asynchronous successive halving, with several
    objectives as in Schmucker et al. 2021, arXiv:2106.12639. Each share is a run with a schedule of its own.
    """

    identity_version: ClassVar[int] = 2
    """In version 1, shares began at exactly `start`, with an extra one just below the whole if no power of η led there.
    """

    start: Annotated[float, Field(gt=0, lt=1)] = 1 / 9
    """Share of the budget that every trial gets first, rounded to a power of 1/`factor`."""
    factor: Annotated[int, Field(ge=2)] = 3
    """Ratio η of successive shares; one in η trials is promoted to the next."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the budget, ending with the whole."""
        steps = max(1, round(-math.log(self.start) / math.log(self.factor)))
        return tuple(self.factor**-power for power in range(steps, -1, -1))


class SearchSpec(Spec):
    """Space that `ablate search` samples around the base, and its objectives."""

    space: SearchSpace
    """Settings that may vary, by path. A path that a model does not have is not sampled for it."""
    objectives: Objectives = Field(default={"loss": "minimize"})
    """Objectives: one for a best trial, several for a Pareto front. A score of an evaluation is `task.metric` with its
    direction."""
    constraints: Annotated[tuple[Constraint, ...], Field(strict=False)] = ()
    """Conditions checked before anything is trained: `block.mixer.kv_heads divides block.mixer.heads`,
    `cache_bytes(8192) <= 64 MB`, `parameters within 2 % of base`."""
    trials: PositiveInt = 60
    """Number of trials. One that is pruned counts for the part that was trained, so that there are more of them at the
    same cost."""
    confirm: NonNegativeInt = 3
    """Number of fresh seeds with which the best trial (of a front, up to three) and the base are trained at the end, on
    top of `trials`; 0 for none."""
    enqueue: Annotated[tuple[SpecJson, ...], Field(strict=False)] = ()
    """Settings known to be good, each a map by path over the base: they are tried first, after the base itself."""
    sampler: Annotated[Sampler, FirstDefault("tpe")] = SamplerSpec()
    """optuna's sampler: `tpe` (tree-structured Parzen estimator), `gp` (Gaussian process), `cmaes` (one objective),
    `nsga2`, `nsga3`, `random`, or `grid` (every combination); `auto` takes a grid that fits into the trials, else
    `tpe`. With settings of optuna's: `{kind: tpe, n_startup_trials: 20}`."""
    pruner: Annotated[Pruner | None, FirstDefault(None)] = PrunerSpec(kind="auto")
    """optuna's rule that stops a trial early by its validation losses, if the loss is the single objective: `asha`,
    `hyperband` or `median`, after its warm-up and a fifth of the run; `auto` takes `median` where it can and runs have
    three validations or more; null takes none."""
    seed: NonNegativeInt = 0
    """Seed of the sampler: with one worker the same seed proposes the same settings, whether interrupted or not."""
    timeout: PositiveFloat | None = None
    """Seconds after which a command begins no more trials; running ones are finished."""
    hours: PositiveFloat | None = None
    """`timeout`, in hours."""
    fidelity: Fidelity | None = None
    """Short runs first; also for several objectives."""
    seeds: PositiveInt = 1
    """A trial's score is the mean over this many seeds, from 1000 up; promoted trials are trained with fresh seeds."""

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_SEED, FIRST_SEED + self.seeds))

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the budget at which trials are trained."""
        return self.fidelity.shares if self.fidelity else (1.0,)

    @property
    def seconds(self) -> float:
        """Seconds during which a command begins trials; infinite by default."""
        return self.timeout or (self.hours * 3600 if self.hours else math.inf)

    @property
    def confirming(self) -> int:
        """Most runs that confirm the best trials and the base."""
        return self.confirm * (2 if len(self.objectives) == 1 else 4)

    @property
    def whole_runs(self) -> float:
        """Cost of all trials, in runs at the whole budget with one seed, if one in η is promoted to each next share."""
        whole, reached = 0.0, self.trials
        for share in self.shares:
            whole += share * reached
            reached //= self.fidelity.factor if self.fidelity else 1
        return whole

    def warnings(self, validations: int) -> list[str]:
        """Warnings about valid but probably unintended settings, for runs with this number of validations."""
        if self._asked and validations < FEWEST_VALIDATIONS:
            times = "once" if validations == 1 else f"{validations} times"
            return [f"pruner: runs are validated {times}, too seldom to stop one early: lower train.validate_every"]
        return []

    @property
    def _asked(self) -> PrunerSpec | None:
        """The pruner, if the study names one."""
        return self.pruner if self.pruner and self.pruner.kind != "auto" else None

    def pruning(self, validations: int = FEWEST_VALIDATIONS) -> PrunerSpec | None:
        """The pruner of runs with this number of validations, with `auto` resolved."""
        if self.pruner is None or self._asked:
            return self._asked
        whole = tuple(self.objectives) == ("loss",) and self.seeds == 1 and not self.fidelity
        return PrunerSpec(kind="median") if whole and validations >= FEWEST_VALIDATIONS else None

    @model_validator(mode="after")
    def _together(self) -> Self:
        asked = self._asked
        if asked and tuple(self.objectives) != ("loss",):
            raise ValueError("pruner: needs loss as the only objective: use fidelity for others")
        if asked and self.fidelity:
            raise ValueError("pruner: cannot be combined with fidelity")
        if asked and self.seeds > 1:
            raise ValueError(f"pruner: {asked.kind} needs a single seed: set seeds to 1")
        if self.timeout and self.hours:
            raise ValueError("timeout: cannot be combined with hours: give one of them")
        if self.sampler.kind == "cmaes" and len(self.objectives) > 1:
            raise ValueError("sampler: cmaes supports only one objective: use tpe, gp, nsga2 or nsga3 for several")
        for path, axis in self.space.items():
            if self.sampler.kind == "grid" and _is_continuous(axis):
                raise ValueError(f"sampler: grid needs a list, or a range with a step, for {path}")
        return self


def _is_continuous(axis: Axis) -> bool:
    if isinstance(axis, Relative):
        return axis.step is None
    spread = axis.distribution
    return isinstance(spread, distributions().FloatDistribution) and spread.step is None


class SearchKeys(Spec):
    """Keys of a study."""

    search: Annotated[SearchSpec | None, LayerRule(spelled=space_by_path)] = None
    """Settings of the base that `ablate search` varies, and its objectives."""


KEYS = SearchKeys
