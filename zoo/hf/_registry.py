"""Families by `model_type`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from zoo.errors import UnsupportedError, did_you_mean
from zoo.hf._family import Family


@cache
def families() -> dict[str, Family]:
    """Families keyed by each `model_type` that they serve, in alphabetical order of their first."""
    names = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")]
    modules = [importlib.import_module(f"zoo.hf.{name}") for name in names]
    found = [value() for module in modules for value in vars(module).values() if _is_family(value, module)]
    ordered = sorted(found, key=lambda family: family.model_types[0])
    return {model_type: family for family in ordered for model_type in family.model_types}


def _is_family(value: object, module: ModuleType) -> bool:
    """Whether it is a class of this module that defines `model_types`: shared base classes do not."""
    return isinstance(value, type) and value.__module__ == module.__name__ and "model_types" in vars(value)


def family_named(model_type: str) -> Family:
    known = families()
    if model_type not in known:
        hint = did_you_mean(model_type, known)
        raise UnsupportedError("model_type", f"'{model_type}' is not supported{hint}; supported: {', '.join(known)}")
    return known[model_type]


def by_preference() -> Iterator[tuple[str, Family]]:
    """Families in order of preference, plain ones first, so that a plain model gets a plain config."""
    yield from sorted(families().items(), key=lambda item: item[1].preference)
