"""What the zoo holds: variants by axis, and presets."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import zoo
from ablate.cli import InputError
from ablate.commands import print_json, print_table
from ablate.commands._traits import assumed_columns, preset_row, text
from zoo.axis import Spec, Variant, variants
from zoo.errors import did_you_mean
from zoo.presets import Preset, names, preset, shrunk, sized_names

PAPER = re.compile(r"arXiv:[0-9]{4}\.[0-9]{4,5}|https?://[^\s)]+[^\s).,]")
TABLE = ("year", "norm", "topology", "placement", "position", "activation", "tricks", "parameters", "published")


def show_all(as_json: bool) -> int:
    catalogue = {axis: [_entry(name, cls) for name, cls in of.items()] for axis, of in axes().items()}
    presets = [preset(name) for name in names()]
    if as_json:
        print_json({"variants": catalogue, "presets": [preset_row(chosen) for chosen in presets]})
        return 0
    for axis, entries in catalogue.items():
        print_table([(axis, "what it is"), *((e["name"], e["doc"]) for e in entries)], text_columns=2)
    print_table(
        [("preset", *TABLE), *map(_shown, sorted(presets, key=lambda chosen: chosen.year))], text_columns=len(TABLE) - 1
    )
    print(
        "* assumed: not in the source. Parameters are counted from the spec, published ones are as the source has them."
    )
    return 0


def _shown(chosen: Preset) -> list[str]:
    """A preset's row of the table."""
    row, assumed = preset_row(chosen), assumed_columns(chosen)
    row["published"] = row["published_parameters"]
    for column in ("parameters", "published"):
        row[column] = _large(row[column])
    return [chosen.name, *(text(row[column]) + "*" * (column in assumed) for column in TABLE)]


def _large(count: float | None) -> str:
    """1.56B, 117M."""
    if count is None:
        return "–"
    return f"{count / 1e9:.4g}B" if count >= 1e9 else f"{count / 1e6:.4g}M"


def show_one(name: str, small: bool, as_json: bool) -> int:
    if name in (presets := (*names(), *sized_names())):
        return _show_preset(preset(name), small, as_json)
    found = [(axis, of[name]) for axis, of in axes().items() if name in of]
    if not found:
        known = [*presets, *(variant for of in axes().values() for variant in of)]
        raise InputError(f"unknown name '{name}'" + (did_you_mean(name, known) or ": see `ablate zoo`"))
    entries = [{"axis": axis, **_entry(name, cls), "settings": _settings(cls)} for axis, cls in found]
    if as_json:
        print_json(entries[0] if len(entries) == 1 else entries)
        return 0
    for (axis, cls), entry in zip(found, entries, strict=True):
        print(f"{axis}: {name}\n\n{inspect.getdoc(cls)}\n")
        for setting, default in entry["settings"].items():
            print(f"  {setting}: {text(default)}")
    return 0


def show_matrix(path: str, as_json: bool) -> int:
    from zoo.matrix import document

    if as_json:
        print_json(document())
        return 0
    from reports.matrix import render_matrix

    try:
        Path(path).write_text(render_matrix(document()), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    print(path)
    return 0


def axes() -> dict[str, dict[str, type[Spec]]]:
    """Every axis of the zoo and its variants: the packages of `zoo` that define a base class for them."""
    packages = (m.name for m in pkgutil.iter_modules(zoo.__path__) if m.ispkg)
    return {axis: variants(f"zoo.{axis}") for axis in packages if _is_axis(f"zoo.{axis}")}


def _is_axis(package: str) -> bool:
    values = vars(importlib.import_module(package)).values()
    return any(isinstance(v, type) and issubclass(v, Variant) and v.__module__ == package for v in values)


def _entry(name: str, cls: type[Spec]) -> dict[str, Any]:
    """A variant's name, the first line of its documentation and the first paper that it names."""
    text = inspect.getdoc(cls) or ""
    paper = PAPER.search(text)
    return {"name": name, "doc": text.partition("\n")[0], "paper": paper.group() if paper else None}


def _settings(cls: type[Spec]) -> dict[str, Any]:
    """Default values as plain data; `required` where there is none."""
    fields = {name: field for name, field in cls.model_fields.items() if name != "kind"}
    plain = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return {name: "required" if fields[name].is_required() else _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Spec) else value


def _show_preset(chosen: Preset, small: bool, as_json: bool) -> int:
    from io import StringIO

    from ruamel.yaml import YAML

    if not chosen.buildable:
        raise InputError(f"preset '{chosen.name}' cannot be built: {chosen.note}")
    document = {**preset_row(chosen), "assumed": chosen.assumed, "note": chosen.note, "model": chosen.spec.dump()}
    if small:
        spec = shrunk(chosen.name)
        document |= {"parameters": zoo.cost(spec).params, "model": spec.dump()}
    if as_json:
        print_json(document)
        return 0
    stream = StringIO()
    YAML(typ="safe", pure=True).dump(document, stream)
    print(stream.getvalue(), end="")
    return 0
