"""The contents of the zoo: variants by axis, and presets."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import zoo
from ablate.commands import DONE, SOME_FAILED, OptionError, print_json, print_table
from ablate.readable import short
from ablate.wings.catalogue.catalogue import (
    OF_ARMS,
    TAGS,
    WHOLES,
    Catalogue,
    by_heading,
    catalogued,
    entry,
    named_values,
    settings_of,
)
from ablate.wings.catalogue.commands._building_blocks import names as building_blocks
from ablate.wings.catalogue.commands._building_blocks import show_block
from ablate.wings.catalogue.model_table import text
from ablate.wings.catalogue.published import preset_row
from zoo.conformance.checking import CheckResult, check_variant, checkable, notes_on, options_of
from zoo.conformance.shrink import shrunk
from zoo.conformance.subject import NOT_APPLICABLE
from zoo.errors import SpecError, did_you_mean
from zoo.presets import Preset, names, preset, sized_names
from zoo.settings.descriptions import descriptions
from zoo.spec import ModelSpec
from zoo.vocabulary import nearest

CONTEXT, DTYPE = 4096, "bfloat16"
LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 8192
"""Sizes of the model in which a part's costs are shown: the preset `small`, enlarged."""
PLACES = {
    "mixers": "block.mixer",
    "ffns": "block.ffn",
    "norms": "block.norm",
    "residuals": "block.norm_placement",
    "positions": "block.mixer.position",
    "sparsities": "block.mixer.sparsity",
}
"""Path of an axis's part in a model."""


class DeclaredCosts(TypedDict):
    """flops_per_token: of a forward pass. cache_bytes: for one row of `context` tokens in bfloat16."""

    context: int
    parameters: int
    flops_per_token: float
    cache_bytes: int


def costs_of(spec: ModelSpec) -> DeclaredCosts:
    """Declared costs of a model at a context of 4,096 tokens."""
    found = zoo.cost(spec, CONTEXT)
    return {
        "context": CONTEXT,
        "parameters": found.params,
        "flops_per_token": found.flops_per_token_forward,
        "cache_bytes": found.cache_bytes(1, CONTEXT, DTYPE),
    }


def costs_with(axis: str, kind: str) -> DeclaredCosts | None:
    """Costs of a model of 8 layers and 512 features that has the part, all else as in the preset `small`.

    None if the part needs settings or other parts that this model lacks.
    """
    if axis not in PLACES:
        return None
    sizes = {"d_model": WIDTH, "n_layers": LAYERS, "vocab_size": VOCABULARY, "block.mixer.heads": HEADS}
    try:
        return costs_of(zoo.load("small", **sizes).edit({PLACES[axis]: kind}))
    except SpecError:
        return None


def shown(costs: DeclaredCosts) -> str:
    """`29.4M parameters; at a context of 4,096 tokens 92.4M FLOPs a token forward and 67.1MB of cache (bfloat16)`."""
    flops, cache = short(costs["flops_per_token"]), short(costs["cache_bytes"])
    return (
        f"{short(costs['parameters'])} parameters; at a context of {costs['context']:,} tokens {flops} FLOPs a token"
        f" forward and {cache}B of cache ({DTYPE})"
    )


def show_one(name: str, small: bool, as_json: bool) -> int:
    if name in (presets := (*names(), *sized_names())):
        return _show_preset(preset(name), small, as_json)
    groups = {**catalogued(), "settings": {whole: (cls, cls) for whole, cls in (WHOLES | OF_ARMS).items()}}
    found = [(axis, *of[name]) for axis, of in groups.items() if name in of]
    if not found:
        return _show_setting(name, groups, presets, as_json)
    entries = [
        {"axis": axis, **entry(name, said), "settings": settings_of(cls), "costs": costs_with(axis, name)}
        for axis, said, cls in found
    ]
    if as_json:
        print_json(entries[0] if len(entries) == 1 else entries)
        return 0
    for axis, said, cls in found:
        print(f"{axis}: {name}\n\n{inspect.getdoc(said)}\n")
        docs = descriptions(cls)
        settings, rows = settings_of(cls), []
        for heading, under in by_heading(cls).items():
            rows += [(f"{heading}:", "", "")] if heading else []
            indent = "  " if heading else ""
            rows += [(f"{indent}{name}", _default(settings[name]), docs.get(name, "")) for name in under]
        if rows:
            print_table([("setting", "default", "description"), *rows], text_columns=3)
        if costs := costs_with(axis, name):
            print(
                f"\nIn a model with {LAYERS} layers of width {WIDTH}, {HEADS} heads and a vocabulary of {VOCABULARY:,}:"
            )
            print(shown(costs))
    return 0


def _show_setting(name: str, groups: Catalogue, presets: Sequence[str], as_json: bool) -> int:
    """Show the parts that have a setting, or a building block. Raises OptionError if the name is neither."""
    owners = [(axis, kind, cls) for axis, of in groups.items() for kind, (_, cls) in of.items()]
    having = [each for each in owners if name in settings_of(each[2])]
    if not having and name in building_blocks():
        show_block(name, as_json)
        return 0
    if not having:
        fields = [(key, field.annotation) for *_, cls in owners for key, field in cls.model_fields.items()]
        for key, kind in (each for each in fields if each[0] not in TAGS):
            if value := nearest(name, named_values(kind)):
                raise OptionError(f"unknown name '{name}': '{value}' is a value of {key}, see `ablate zoo {key}`")
        settings = (key for *_, cls in owners for key in settings_of(cls))
        known = [*presets, *(kind for _, kind, _ in owners), *settings, *building_blocks()]
        raise OptionError(f"unknown name '{name}'" + (did_you_mean(name, known) or ": see `ablate zoo`"))
    rows = [(axis, kind, settings_of(cls)[name], descriptions(cls).get(name, "")) for axis, kind, cls in having]
    if as_json:
        print_json([dict(zip(("axis", "name", "default", "doc"), row, strict=True)) for row in rows])
        return 0
    shown = [(f"{axis}: {kind}", _default(default), doc) for axis, kind, default, doc in rows]
    print_table([(f"{name} is a setting of", "default", "description"), *shown], text_columns=3)
    return 0


def show_matrix(path: str, as_json: bool) -> int:
    from zoo.conformance.matrix import document

    if as_json:
        print_json(document())
        return 0
    from ablate.wings.catalogue.matrix_page import render_matrix

    try:
        Path(path).write_text(render_matrix(**document()), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from None
    print(path)
    return 0


def _default(value: Any) -> str:
    """A default value in a table: a part by its kind, or else by its settings."""
    if isinstance(value, dict) and value:
        return str(value.get("kind") or ", ".join(f"{name} {_default(part)}" for name, part in value.items()))
    return "null" if value is None else text(value) or "[]"


def _show_preset(chosen: Preset, small: bool, as_json: bool) -> int:
    from io import StringIO

    from ruamel.yaml import YAML

    if small and not chosen.buildable:
        raise OptionError(f"preset '{chosen.name}' cannot be built, at any size: {chosen.note}")
    model = chosen.spec.dump() if chosen.buildable else chosen.parts
    document = {
        **preset_row(chosen),
        "buildable": chosen.buildable,
        "costs": costs_of(chosen.spec) if chosen.buildable else None,
        "model": model,
    }
    if small:
        spec = shrunk(chosen.name)
        cost = zoo.cost(spec)
        document |= {"parameters": cost.params, "active_parameters": cost.params_active, "model": spec.dump()}
        document["costs"] = costs_of(spec)
    if as_json:
        print_json(document)
        return 0
    stream = StringIO()
    YAML(typ="safe", pure=True).dump(document, stream)
    print(stream.getvalue(), end="")
    return 0


SAID_WIDTH = 100
"""Maximum width of a progress line, in characters: a model with dozens of choices has a long name."""


def show_check(kind: str, as_json: bool, quick: bool) -> int:
    if not options_of(kind):
        near = did_you_mean(kind, checkable()) or ": see `ablate zoo` (a plug-in's? give --plugin FILE)"
        raise OptionError(f"--check {kind}: there is no such part of a model{near}")
    found = check_variant(kind, _say, quick)
    failed = any(finding.failures for finding in found)
    notes = [] if failed else notes_on(kind)
    if as_json:
        checks = [asdict(finding) for finding in found]
        print_json({"variant": kind, "conforms": not failed, "checks": checks, "notes": notes})
    else:
        _print(found)
        for note in notes:
            print(f"note: {note}")
    return SOME_FAILED if failed else DONE


def _print(found: list[CheckResult]) -> None:
    rows = [(each.check, each.property, _verdict(each)) for each in found]
    print_table([("check", "property", "models"), *rows], text_columns=3)
    failed: dict[tuple[str, str], list[str]] = {}
    for each in found:
        if each.failures:  # the first is the simplest model; `--json` has all
            failed.setdefault(each.failures[0], []).append(each.check)
    for (model, reason), checks in failed.items():
        which = checks[0] if len(checks) == 1 else f"these {len(checks)} checks"
        print(f"{which}: {reason}\n    in {model}")
        if len(checks) > 1:
            print(textwrap.indent(textwrap.fill(", ".join(checks), SAID_WIDTH), "    "))


def _say(line: str) -> None:
    print(textwrap.shorten(line, SAID_WIDTH, placeholder=" …"), file=sys.stderr, flush=True)


def _verdict(finding: CheckResult) -> str:
    if not finding.models:
        return NOT_APPLICABLE if finding.tried else "not checked"
    failed = len(finding.failures)
    return f"fails in {failed} of {finding.models}" if failed else f"holds in all {finding.models}"
