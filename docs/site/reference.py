"""Pages of the site that are generated from code, so that no command, setting or variant is without one."""

from __future__ import annotations

import html
import inspect
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from typing import Any

import torch

import ablate
import zoo
from ablate.api.catalogue import catalogued, settings_of
from ablate.cli import COMMANDS, main
from ablate.study.schema import study_schema
from ablate.study.sections import StartSpec, TeacherSpec
from zoo.axis import Spec
from zoo.descriptions import descriptions
from zoo.errors import SpecError
from zoo.matrix import axes

WIDTH, CONTEXT = 256, 1024
SETTINGS = """# Settings of a study

Keys of a study file by dotted path; `data.path` and `data: {path: …}` are the same. The settings of models, below
`base`, `arms`, `factors` and `grid`, are those of the [variants](variants.md), of `model` and of `block`; `scales` has
edits of all of them. [Writing a study](../studies.md) explains how they go together.
"""
OF_ARMS = """
## Settings of an arm

Arms edit the model, `train` and `data.tokenizer`, and may also have:
"""
VARIANTS = f"""# Variants

Costs are of the preset `small` at d_model {WIDTH} with four layers, where the variant fits it with its defaults:
non-embedding parameters, forward and backward FLOPs per token at a context of {CONTEXT:,}, and bytes of cache per token
in 16 bits.
"""
MODELS = ("base", "arms", "factors", "grid", "scales")
"""Keys of a study under which the settings of models stand, or all settings again."""


def pages() -> dict[str, str]:
    """Markdown by path on the site."""
    made = {"commands": commands(), "settings": settings(), "variants": variants(), "python": python()}
    return {f"reference/{name}.md": "\n".join(lines) + "\n" for name, lines in made.items()}


def commands() -> Iterator[str]:
    """Page with the `--help` output of every command."""
    os.environ["COLUMNS"] = "100"
    yield "# Commands\n"
    for name in COMMANDS:
        out = io.StringIO()
        with redirect_stdout(out), suppress(SystemExit):
            main([name, "--help"])
        yield f"## ablate {name}\n\n```text\n{out.getvalue().rstrip()}\n```\n"


def settings() -> Iterator[str]:
    """Every key of a study file but for those of models."""
    yield SETTINGS
    yield "| key | value | what it is |\n|---|---|---|"
    for key, schema in study_schema()["properties"].items():
        if key.partition(".")[0] not in MODELS:
            yield f"| `{key}` | {cell(kinds_of(schema))} | {cell(schema.get('description', ''))} |"
    yield OF_ARMS
    for name, cls in {"start": StartSpec, "teacher": TeacherSpec}.items():
        yield f"### {name}\n\n{cell(inspect.getdoc(cls) or '')}\n"
        yield from settings_table(cls)


def kinds_of(schema: Mapping[str, Any]) -> str:
    """The values that a schema allows, in a few words."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    members = schema.get("anyOf") or schema.get("oneOf") or ()
    words = dict.fromkeys(word for member in members for word in [kinds_of(member)] if word)
    kind = schema.get("type", "")
    return ", ".join(words) or (", ".join(kind) if isinstance(kind, list) else kind)


def variants() -> Iterator[str]:
    """Documentation, settings and cost of all that has a name."""
    paths = dict(paths_of_parts())
    yield VARIANTS
    for axis, entries in catalogued().items():
        yield f"## {axis}\n"
        for name, (documented, cls) in entries.items():
            yield f"### {axis}: {name}\n\n{written(inspect.getdoc(documented) or '')}\n"
            yield from cost_of(paths.get((axis.rpartition(".")[2], name)), name)
            yield from settings_table(cls)


def paths_of_parts() -> Iterator[tuple[tuple[str, str], str]]:
    """Where a model takes a variant: the first place, by the folder of its axis and its name."""
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
    rows, docs = settings_of(cls), descriptions(cls)
    if rows:
        yield "| setting | default | what it is |\n|---|---|---|"
        yield from (
            f"| `{name}` | {cell(in_yaml(value))} | {cell(docs.get(name, ''))} |" for name, value in rows.items()
        )
        yield ""


def python() -> Iterator[str]:
    """Signatures and docstrings of the public names."""
    yield "# Python\n\n[From Python](../python.md) is a guide.\n"
    for module in (ablate, zoo):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                text = "\n\n".join((signature(module.__name__, name, value), inspect.getdoc(value) or ""))
                yield f"## {module.__name__}.{name}\n\n{written(text)}\n"


def signature(module: str, name: str, value: Any) -> str:
    try:
        return f"{module}.{name}{inspect.signature(value)}"
    except ValueError:  # of a class without one
        return f"{module}.{name}"


def written(text: str) -> str:
    """A docstring as it is, with long lines broken."""
    return f'<pre style="white-space: pre-wrap">{html.escape(text)}</pre>'


def in_yaml(value: object) -> str:
    return "null" if value is None else str(value)


def cell(text: str) -> str:
    """Text of a table's cell: one line, and no bar that would end it, nor a tag."""
    parts = " ".join(text.split()).split("`")  # every second one is code
    return "".join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    return f"<code>{escaped(text)}</code>" if set(text) & set("|<>&*_") else f"`{text}`"


def escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "&#124;")
