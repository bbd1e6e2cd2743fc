"""Samplers and pruners of a search by optuna's names, with optuna's own settings.

sampler: tpe
sampler: {kind: tpe, n_startup_trials: 20}     any argument of optuna.samplers.TPESampler
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from store.documents import JsonObject
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec
from zoo.settings.explain import unknown

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
