"""What the zoo holds: variants by axis, and presets."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import zoo
from ablate.cli import InputError
from ablate.commands import print_json, print_table, terminal_width
from ablate.commands._preset_table import large, preset_table
from ablate.commands._traits import PATHS, preset_row, text, tricks
from zoo.axis import Spec, Variant, variants
from zoo.presets import Preset, names, nearest, preset, shrunk, written

CONTEXT = 4096
"""Tokens at which the costs of a preset are shown."""
PAPER = re.compile(r"arXiv:[0-9]{4}\.[0-9]{4,5}|https?://[^\s)]+[^\s).,]")


def show_all(as_json: bool) -> int:
    catalogue = {axis: [_entry(name, cls) for name, cls in of.items()] for axis, of in axes().items()}
    presets = [preset(name) for name in names()]
    if as_json:
        print_json({"variants": catalogue, "presets": [preset_row(chosen) for chosen in presets]})
        return 0
    for axis, entries in catalogue.items():
        print_table([(axis, "what it is"), *((e["name"], e["doc"]) for e in entries)], text_columns=2)
    print(*preset_table(sorted(presets, key=lambda chosen: chosen.year), terminal_width()), sep="\n")
    return 0


def show_one(name: str, small: bool, as_json: bool) -> int:
    if name in names():
        return _show_preset(preset(name), small, as_json)
    found = [(axis, of[name]) for axis, of in axes().items() if name in of]
    if not found:
        known = [*names(), *(variant for of in axes().values() for variant in of)]
        raise InputError(f"unknown name '{name}'" + (nearest(name, known) or ": see `ablate zoo`"))
    entries = [{"axis": axis, **_entry(name, cls), "settings": _settings(cls)} for axis, cls in found]
    if as_json:
        print_json(entries[0] if len(entries) == 1 else entries)
        return 0
    for (axis, cls), entry in zip(found, entries, strict=True):
        print(f"{axis}: {name}\n\n{inspect.getdoc(cls)}\n")
        for setting, default in entry["settings"].items():
            print(f"  {setting}: {'null' if default is None else text(default)}")
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
    """A variant's name, the first paragraph of its documentation and the first paper that it names."""
    doc = inspect.getdoc(cls) or ""
    paper = PAPER.search(doc)
    return {"name": name, "doc": " ".join(doc.split("\n\n")[0].split()), "paper": paper.group() if paper else None}


def _settings(cls: type[Spec]) -> dict[str, Any]:
    """Default values as plain data; `required` where there is none."""
    fields = {name: field for name, field in cls.model_fields.items() if name != "kind"}
    plain = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return {name: "required" if fields[name].is_required() else _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Spec) else value


def _show_preset(chosen: Preset, small: bool, as_json: bool) -> int:
    if small and not chosen.buildable:
        raise InputError(f"preset '{chosen.name}' cannot be built: {chosen.note}")
    spec = shrunk(chosen.name) if small else chosen.spec if chosen.buildable else None
    if as_json:
        said = {"assumed": chosen.assumed, "stand_ins": chosen.stand_ins, "note": chosen.note}
        count = None if spec is None else zoo.cost(spec).params
        model = chosen.parts if spec is None else spec.dump()
        print_json({**preset_row(chosen), "parameters": count, **said, "model": model})
        return 0
    for line in _summary(chosen, spec):
        print(textwrap.fill(line, min(terminal_width(), 120), initial_indent="# ", subsequent_indent="# "))
    print()
    print(_as_yaml(spec) if small and spec is not None else written(chosen.name), end="")
    return 0


def _summary(chosen: Preset, spec: zoo.ModelSpec | None) -> Iterator[str]:
    """What follows from a preset's file and is not in it."""
    row, told = preset_row(chosen), [] if spec is None else tricks(spec)
    made_of = [row[key] for key in PATHS if row[key]] + [words for _, words in told]
    yield f"{chosen.name} ({chosen.year}): {', '.join(made_of)}"
    if spec is None:
        yield "too little is public to build it"
        return
    cost = zoo.cost(spec, CONTEXT)
    active = f", {large(cost.params_active)} active" if cost.params_active < cost.params else ""
    yield f"{large(cost.params)} parameters{active}; {large(cost.flops_per_token)} FLOPs to train on a token"
    cache = cost.cache_bytes(1, CONTEXT, "bfloat16") / CONTEXT
    yield f"{cache:,.0f} bytes of cache per token (bfloat16, {CONTEXT:,} tokens)"


def _as_yaml(spec: zoo.ModelSpec) -> str:
    stream, yaml = StringIO(), YAML()
    yaml.representer.add_representer(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    yaml.dump(spec.dump(), stream)
    return stream.getvalue()
