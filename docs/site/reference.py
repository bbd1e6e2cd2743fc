"""Reference pages of the site, generated from code so that every command, setting and variant has one."""

from __future__ import annotations

import html
import inspect
import io
import json
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from typing import Any, TypeAlias

import torch
from ranges import in_words, ranges_of

import ablate
import zoo
from ablate.cli import COMMANDS, main
from ablate.study.arms import SOURCES
from ablate.study.sections import StudySections
from ablate.wings.catalogue.catalogue import WHOLES, Catalogue, catalogued, entry, settings_of
from ablate.wings.prepare.schema import study_schema
from zoo.conformance.matrix import axes
from zoo.errors import SpecError
from zoo.settings.axis import Spec
from zoo.settings.descriptions import descriptions

WIDTH, CONTEXT = 256, 1024
SETTINGS = """# Settings of a study

Keys of a study file; `data.path` and `data: {path: …}` are the same. The settings of models, below
`base`, `arms`, `factors` and `grid`, are those of the [variants](variants.md), of `model` and of `block`; `scales` has
edits of all of them. [Writing a study](../studies.md) explains how they go together.
"""
OF_ARMS = """
## Settings of an arm

Arms edit the model, `train` and `data.tokenizer`, and may also have:
"""
VARIANTS = f"""# Variants

Each has a page with its formula, settings and cost: that of the preset `small` at d_model {WIDTH} with four layers,
where the variant fits it with its defaults. Parameters are non-embedding, FLOPs forward and backward per token at a
context of {CONTEXT:,}, and bytes of cache per token in 16 bits.
"""
PYTHON = """# Python

[From Python](../python.md) is a guide.

| name | what it is |
|---|---|"""
FIRST = ("run", "plan", "compare")
"""Names with which the Python reference opens."""
MODELS = ("base", "arms", "factors", "grid", "scales")
"""Keys of a study that contain settings of models, or repeat all settings."""
LARGE = 8
"""Fewest keys below a setting that give it a page of its own."""
COLUMNS = "| setting | values | default | what it is |\n|---|---|---|---|"

Page: TypeAlias = tuple[str, Iterator[str]]
"""(path below `reference`, lines)."""


def pages() -> dict[str, str]:
    """Markdown by path on the site: an index of each kind, and a page for each part."""
    made = (*commands(), *settings(), *variants(), *python())
    return {f"reference/{path}.md": "\n".join(lines) + "\n" for path, lines in made}


def commands() -> Iterator[Page]:
    """The `--help` output of every command."""
    os.environ["COLUMNS"] = "100"
    links = (f"- [`ablate {name}`](commands/{name}.md)" for name in COMMANDS)
    yield "commands", iter(("# Commands\n", *links))
    for name in COMMANDS:
        yield f"commands/{name}", command(name)


def command(name: str) -> Iterator[str]:
    out = io.StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        main([name, "--help"])
    yield f"# ablate {name}\n\n```text\n{out.getvalue().rstrip()}\n```"


def settings() -> Iterator[Page]:
    """All keys of a study file except those of models: one page per section, and per large part of a section."""
    known = {key: schema for key, schema in study_schema()["properties"].items() if key.partition(".")[0] not in MODELS}
    inside = Counter(part_of(key) for key in known if key.count(".") > 1)
    large = {part for part, keys in inside.items() if keys >= LARGE}
    found: dict[str, list[str]] = {}
    for key in sorted(known):
        part = part_of(key)
        found.setdefault(part if part in large and part != key else key.partition(".")[0], []).append(key)
    pages = {name: keys for name, keys in found.items() if len(keys) > 1}
    yield "settings", all_sections({name: known[name] for name in found if "." not in name}, set(pages))
    for name, keys in pages.items():
        linked = {key: f"[`{key}`]({key}.md)" if key in large else f"`{key}`" for key in keys}
        rows = (setting_row(linked[key], key, known[key]) for key in keys)
        text = cell(known[name]["description"])
        yield f"settings/{name}", iter((f"# Settings: {name}\n", f"{text}\n", COLUMNS, *rows))


def part_of(key: str) -> str:
    """The setting of a section that a key is or lies below: `data.tokenizer`."""
    return ".".join(key.split(".")[:2])


def all_sections(schemas: Mapping[str, Mapping[str, Any]], pages: Container[str]) -> Iterator[str]:
    yield SETTINGS
    yield COLUMNS
    for name, schema in schemas.items():
        yield setting_row(f"[`{name}`](settings/{name}.md)" if name in pages else f"`{name}`", name, schema)
    yield OF_ARMS
    for name, cls in SOURCES.items():
        yield f"### {name}\n\n{cell(inspect.getdoc(cls) or '')}\n"
        yield from settings_table(cls)


def setting_row(shown: str, key: str, schema: Mapping[str, Any]) -> str:
    return f"| {shown} | {cell(in_words(schema, {}))} | {cell(default_of(key))} | {cell(schema['description'])} |"


def default_of(key: str) -> str:
    """Default of a key in a study that chooses nothing; empty for keys of other choices."""
    first, *rest = key.split(".")
    field = StudySections.model_fields[first]
    value = "required" if field.is_required() else field.get_default(call_default_factory=True)
    for part in rest:
        value = getattr(value, part, "") if isinstance(value, Spec) else ""
    return "" if isinstance(value, Spec) else in_yaml(value)


def variants() -> Iterator[Page]:
    """Documentation, settings and cost of every named variant."""
    wholes = {name: (cls, cls) for name, cls in WHOLES.items()}
    paths, found = dict(paths_of_parts()), {"model": wholes, **catalogued()}
    yield "variants", all_axes(found)
    for axis, entries in found.items():
        yield f"variants/{axis}", axis_index(axis, entries)
        for name, (documented, cls) in entries.items():
            yield f"variants/{axis}/{name}", variant(axis, name, documented, cls, paths)


def all_axes(found: Catalogue) -> Iterator[str]:
    yield VARIANTS
    for axis, entries in found.items():
        names = ", ".join(f"[{name}](variants/{axis}/{name}.md)" for name in entries)
        yield f"**[{axis}](variants/{axis}.md)**: {names}\n"


def axis_index(axis: str, entries: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    yield f"# Variants: {axis}\n\n| name | what it is |\n|---|---|"
    for name, (documented, _) in entries.items():
        yield f"| [{name}]({axis}/{name}.md) | {cell(entry(name, documented)['doc'])} |"


def variant(axis: str, name: str, documented: Any, cls: type[Any], paths: Mapping[Any, str]) -> Iterator[str]:
    yield f"# {axis}: {name}\n\n{written(inspect.getdoc(documented) or '')}\n"
    yield from cost_of(paths.get((axis.rpartition(".")[2], name)), name)
    yield from settings_table(cls)


def paths_of_parts() -> Iterator[tuple[tuple[str, str], str]]:
    """((folder of its axis, name), path) of each place for a variant, reversed, so that `dict` keeps the first."""
    for of in reversed(list(axes().values())):
        for option in of:
            for path, value in option.edits.items():
                if isinstance(value, dict) and "kind" in value:
                    yield (path_folder(path), str(value["kind"])), path


def path_folder(path: str) -> str:
    part = path.rpartition(".")[2]
    named = {"norm_placement": "residuals", "sparsity": "sparsities"}
    return named.get(part, f"{part}s")


def cost_of(path: str | None, name: str) -> Iterator[str]:
    if path is None:
        return
    try:
        cost = zoo.cost(zoo.load("small", **{"d_model": WIDTH, path: name}), context=CONTEXT)
    except SpecError as error:
        yield f"`{path}: {name}` is refused with its defaults: {error}\n"
        return
    parameters, megaflops = cost.params - cost.params_embedding, cost.flops_per_token / 1e6
    cached = cost.cache_bytes(1, CONTEXT, torch.bfloat16) / CONTEXT
    costs = f"{parameters:,} parameters, {megaflops:,.1f} MFLOPs, {cached:,.0f} bytes of cache per token"
    yield f"`{path}: {name}`: {costs}.\n"


def settings_table(cls: type[Any]) -> Iterator[str]:
    rows, docs, ranges = settings_of(cls), descriptions(cls), ranges_of(cls)
    if rows:
        yield COLUMNS
        for name, value in rows.items():
            yield f"| `{name}` | {cell(ranges[name])} | {cell(in_yaml(value))} | {cell(docs[name])} |"
        yield ""


def python() -> Iterator[Page]:
    """Signatures and docstrings of the public names."""
    names = sorted(ablate.__all__, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    public = [(module, name) for module, of in ((ablate, names), (zoo, zoo.__all__)) for name in of]
    called = {f"{module.__name__}.{name}": getattr(module, name) for module, name in public}
    called = {path: value for path, value in called.items() if callable(value)}
    rows = (f"| [`{path}`](python/{path}.md) | {cell(entry(path, value)['doc'])} |" for path, value in called.items())
    yield "python", iter((PYTHON, *rows))
    for path, value in called.items():
        text = "\n\n".join((signature(path, value), inspect.getdoc(value) or ""))
        yield f"python/{path}", iter((f"# {path}\n\n{written(text)}",))


def signature(path: str, value: Any) -> str:
    try:
        return f"{path}{inspect.signature(value)}"
    except ValueError:  # a class without a signature
        return path


def written(text: str) -> str:
    """A docstring as preformatted text that wraps."""
    return f'<pre style="white-space: pre-wrap">{html.escape(text)}</pre>'


def in_yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def cell(text: str) -> str:
    """Text of a table cell: one line, with bars and tags escaped."""
    parts = " ".join(text.split()).split("`")  # every second part is code
    return "".join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    return f"<code>{escaped(text)}</code>" if set(text) & set("|<>&*_") else f"`{text}`"


def escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "&#124;")
