"""The contents of the zoo: variants by axis, and presets."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict, get_args

import zoo
from ablate.commands import OptionError, print_json, print_table
from ablate.commands._traits import assumed_columns, preset_row, text
from ablate.plugins import check_groups
from ablate.study.sections import StartSpec, TeacherSpec
from ablate.training.lora import LoraSpec
from ablate.training.spec import TrainSpec
from evals.evaluations import evaluations
from zoo.axis import Spec, Variant, variants
from zoo.block_spec import BlockSpec
from zoo.decode import BeamSearch, Sampling, Speculation, beam_search, generate, lookahead, speculate
from zoo.errors import did_you_mean
from zoo.presets import Preset, names, preset, shrunk, sized_names
from zoo.registry import plugins
from zoo.spec import ModelSpec

PAPER = re.compile(r"arXiv:[0-9]{4}\.[0-9]{4,5}|https?://[^\s)]+[^\s).,]")
WHOLES: dict[str, type[Spec]] = {"model": ModelSpec, "block": BlockSpec}
"""Specs whose parts the variants are."""
OF_ARMS: dict[str, type[Spec]] = {"train": TrainSpec, "lora": LoraSpec, "start": StartSpec, "teacher": TeacherSpec}
"""Sections of an arm beside its model."""
Catalogue: TypeAlias = Mapping[str, Mapping[str, tuple[Any, type[Spec]]]]
"""The documented object and the spec with the settings, by axis and name."""
DECODING: dict[str, tuple[Callable[..., Any], type[Spec]]] = {
    "beam_search": (beam_search, BeamSearch),
    "generate": (generate, Sampling),
    "lookahead": (lookahead, Sampling),
    "speculate": (speculate, Speculation),
}
"""Ways to decode, and the settings of each."""
OTHERS = {
    "ablate.training.objectives": "kind",
    "ablate.training.optimizers": "kind",
    "ablate.data.sources": "source",
    "ablate.data.tokenizers": "kind",
}
"""Other choices of a study, with the field that names the choice."""
TABLE = ("year", "norm", "topology", "placement", "position", "activation", "tricks", "parameters", "published")


def show_all(as_json: bool) -> int:
    check_groups()
    catalogue = {axis: [_entry(name, of) for name, (of, _) in each.items()] for axis, each in catalogued().items()}
    presets = [preset(name) for name in names()]
    if as_json:
        print_json({"variants": catalogue, "presets": [preset_row(chosen) for chosen in presets]})
        return 0
    for axis, entries in catalogue.items():
        print_table([(axis, "what it is"), *((e["name"], _described(e)) for e in entries)], text_columns=2)
    print_table(
        [("preset", *TABLE), *map(_shown, sorted(presets, key=lambda chosen: chosen.year))], text_columns=len(TABLE) - 1
    )
    print(
        "* assumed: not in the source. Parameters are counted from the spec, published ones are as the source has them."
    )
    print("`ablate zoo NAME` shows a variant or a preset in full, and the settings of a part, of `model`, `block`,")
    print("`train`, `lora`, `start` or `teacher`, and a setting's name the parts that have it.")
    return 0


def _described(entry: _Entry) -> str:
    return f"{entry['doc']} (plug-in {entry['plugin']})" if "plugin" in entry else entry["doc"]


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
    groups = {**catalogued(), "settings": {whole: (cls, cls) for whole, cls in (WHOLES | OF_ARMS).items()}}
    found = [(axis, *of[name]) for axis, of in groups.items() if name in of]
    if not found:
        return _show_setting(name, groups, presets, as_json)
    entries = [{"axis": axis, **_entry(name, said), "settings": settings_of(cls)} for axis, said, cls in found]
    if as_json:
        print_json(entries[0] if len(entries) == 1 else entries)
        return 0
    for axis, said, cls in found:
        print(f"{axis}: {name}\n\n{inspect.getdoc(said)}\n")
        docs = docs_of_settings(cls)
        rows = [(name, _default(default), docs.get(name, "")) for name, default in settings_of(cls).items()]
        if rows:
            print_table([("setting", "default", "what it is"), *rows], text_columns=3)
    return 0


def _show_setting(name: str, groups: Catalogue, presets: Sequence[str], as_json: bool) -> int:
    """Show a setting that belongs to no single part. Raises OptionError if there is no such setting."""
    owners = [(axis, kind, cls) for axis, of in groups.items() for kind, (_, cls) in of.items()]
    having = [each for each in owners if name in settings_of(each[2])]
    if not having:
        known = [*presets, *(kind for _, kind, _ in owners), *(key for *_, cls in owners for key in settings_of(cls))]
        raise OptionError(f"unknown name '{name}'" + (did_you_mean(name, known) or ": see `ablate zoo`"))
    rows = [(axis, kind, settings_of(cls)[name], docs_of_settings(cls).get(name, "")) for axis, kind, cls in having]
    if as_json:
        print_json([dict(zip(("axis", "name", "default", "doc"), row, strict=True)) for row in rows])
        return 0
    shown = [(f"{axis}: {kind}", _default(default), doc) for axis, kind, default, doc in rows]
    print_table([(f"{name} is a setting of", "default", "what it is"), *shown], text_columns=3)
    return 0


def show_matrix(path: str, as_json: bool) -> int:
    from zoo.matrix import document

    if as_json:
        print_json(document())
        return 0
    from reports.pages.matrix import render_matrix

    try:
        Path(path).write_text(render_matrix(**document()), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from None
    print(path)
    return 0


def catalogued() -> dict[str, Mapping[str, tuple[Any, type[Spec]]]]:
    """All that has a name: what documents it and what has its settings, by axis, and what is no axis of the zoo."""
    others = {package.rpartition(".")[2]: variants(package, tag) for package, tag in OTHERS.items()}
    classes: dict[str, Mapping[str, type[Spec]]] = {
        **axes(),
        "parts": _parts(),
        **others,
        "evaluations": evaluations(),
    }
    documented = {axis: {name: (cls, cls) for name, cls in of.items()} for axis, of in classes.items()}
    return {**documented, "decoding": DECODING}


def _parts() -> dict[str, type[Spec]]:
    """The settings of a model and of a block that are a part with settings and without variants."""
    fields = {name: field for whole in WHOLES.values() for name, field in whole.model_fields.items()}
    return {
        name: part
        for name, field in sorted(fields.items())
        for part in (field.annotation, *get_args(field.annotation))
        if isinstance(part, type) and issubclass(part, Spec) and not issubclass(part, (Variant, *WHOLES.values()))
    }


def axes() -> dict[str, dict[str, type[Spec]]]:
    """Every axis of the zoo and its variants: the packages of `zoo` that define a base class for them, also those
    within another (`positions.scalings`)."""
    return {package.removeprefix("zoo."): variants(package) for package in _axes_below("zoo")}


def _axes_below(package: str) -> Iterator[str]:
    inside = importlib.import_module(package).__path__
    for name in (f"{package}.{m.name}" for m in pkgutil.iter_modules(inside) if m.ispkg):
        if _is_axis(name):
            yield name
            yield from _axes_below(name)


def _is_axis(package: str) -> bool:
    values = vars(importlib.import_module(package)).values()
    return any(isinstance(v, type) and issubclass(v, Variant) and v.__module__ == package for v in values)


class _Entry(TypedDict):
    name: str
    doc: str
    paper: str | None
    plugin: NotRequired[str]


def _entry(name: str, documented: Any) -> _Entry:
    """A name, the first paragraph of its documentation, the first paper that it names, and where it is from if it is
    plugged in."""
    text = inspect.getdoc(documented) or ""
    paper = PAPER.search(text)
    found = _Entry(name=name, doc=" ".join(text.partition("\n\n")[0].split()), paper=paper.group() if paper else None)
    origin = next((str(each) for each in plugins() if each.module == documented.__module__), None)
    return {**found, "plugin": origin} if origin else found


def _default(value: Any) -> str:
    """A default in a table: a part by its kind, or by what it is made of."""
    if isinstance(value, dict) and value:
        return str(value.get("kind") or ", ".join(f"{name} {_default(part)}" for name, part in value.items()))
    return "null" if value is None else text(value) or "[]"


def docs_of_settings(cls: type[Spec]) -> dict[str, str]:
    """Docstrings of the fields of a class and of its bases, by name."""
    docs: dict[str, str] = {}
    for owner in reversed([each for each in cls.__mro__ if issubclass(each, Spec)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in pairwise(body.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(written))):
                    docs[name] = " ".join(written.split())
    return docs


def settings_of(cls: type[Spec]) -> dict[str, object]:
    """Default values as plain data; `required` where there is none."""
    fields = {name: field for name, field in cls.model_fields.items() if name != "kind"}
    plain = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return {name: "required" if fields[name].is_required() else _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Spec) else value


def _show_preset(chosen: Preset, small: bool, as_json: bool) -> int:
    from io import StringIO

    from ruamel.yaml import YAML

    if small and not chosen.buildable:
        raise OptionError(f"preset '{chosen.name}' cannot be built, at any size: {chosen.note}")
    model = chosen.spec.dump() if chosen.buildable else chosen.parts
    document = {
        **preset_row(chosen),
        "assumed": chosen.assumed,
        "note": chosen.note,
        "buildable": chosen.buildable,
        "model": model,
    }
    if small:
        spec = shrunk(chosen.name)
        cost = zoo.cost(spec)
        document |= {"parameters": cost.params, "active_parameters": cost.params_active, "model": spec.dump()}
    if as_json:
        print_json(document)
        return 0
    stream = StringIO()
    YAML(typ="safe", pure=True).dump(document, stream)
    print(stream.getvalue(), end="")
    return 0
