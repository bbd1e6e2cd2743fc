"""Families by `model_type`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from zoo.errors import UnsupportedError
from zoo.hf._config import transformers_module
from zoo.hf._family import Family


@cache
def families() -> dict[str, Family]:
    """Families keyed by each `model_type` that they serve, in alphabetical order of their first."""
    names = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")]
    modules = [importlib.import_module(f"zoo.hf.{name}") for name in names]
    classes = [(module, value) for module in modules for value in vars(module).values() if isinstance(value, type)]
    # Shared base classes do not define `model_types`.
    found = [each() for module, each in classes if each.__module__ == module.__name__ and "model_types" in vars(each)]
    ordered = sorted(found, key=lambda family: family.model_types[0])
    return {model_type: family for family in ordered for model_type in family.model_types}


def family_named(model_type: str) -> Family:
    known = families()
    if model_type not in known:
        near = list(islice(_nearest(model_type), 3))
        hint = f"; nearest: {', '.join(near)}" if near else ""
        all_of_them = f"all {len(known)}: docs/checkpoints_taken.md, zoo.hf.families()"
        raise UnsupportedError("model_type", f"'{model_type}' is not supported{hint} ({all_of_them})")
    return known[model_type]


def _nearest(model_type: str) -> Iterator[str]:
    """Names of families, nearest in kind first: the same series by version, then those that transformers' code of the
    model is built from, then the nearest in spelling."""
    known, (series, version) = families(), _series(model_type)
    same = [name for name in known if _related(series, _series(name)[0])]
    same.sort(key=lambda name: (abs(_series(name)[1] - version), name))
    similar = difflib.get_close_matches(model_type, known, n=3)
    folder = Path(transformers_module().__file__ or "").parent / "models" / model_type
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("mod*.py")))
    used = Counter(re.findall(r"from (?:\.\.|transformers\.models\.)(\w+)", code)).most_common()
    yield from dict.fromkeys((*same, *(name for name, _ in used if name in known), *similar))


def _series(name: str) -> tuple[str, int]:
    """Letters at the start of a name, and the first number in it; 1 without any."""
    letters, number = re.match("[a-z]*", name.lower()), re.search(r"\d+", name)
    return letters[0] if letters else "", int(number[0]) if number else 1


def _related(one: str, other: str) -> bool:
    """phimoe and phi, qwen and qwen."""
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and long.startswith(short)


def by_preference() -> Iterator[tuple[str, Family]]:
    """Families in order of preference, plain ones first, so that a plain model gets a plain config."""
    yield from sorted(families().items(), key=lambda item: item[1].preference)
