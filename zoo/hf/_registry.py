"""Families by `model_type`, and transformers itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from zoo.errors import UnsupportedError, did_you_mean
from zoo.hf._family import Family
from zoo.settings.registry import only_class


@cache
def families() -> dict[str, Family]:
    """Every family, by each `model_type` that it serves, in alphabetical order of the files."""
    names = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))
    modules = [importlib.import_module(f"zoo.hf.{name}") for name in names]
    found = [only_class(module, Family)() for module in modules]  # type: ignore[type-abstract]
    return {model_type: family for family in found for model_type in family.model_types}


def family_named(model_type: str) -> Family:
    known = families()
    if model_type not in known:
        hint = did_you_mean(model_type, known)
        raise UnsupportedError("model_type", f"'{model_type}' is not supported{hint}: there are {', '.join(known)}")
    return known[model_type]


def by_preference() -> Iterator[tuple[str, Family]]:
    """Families that are special cases of none come after plain ones, so that a plain model gets a plain config."""
    yield from sorted(families().items(), key=lambda item: item[1].preference)


def transformers_module() -> ModuleType:
    try:
        import transformers  # noqa: PLC0415 (an optional extra, and slow to import)
    except ImportError:
        raise ImportError("converting models needs transformers: pip install transformers peft") from None
    found: ModuleType = transformers
    return found
