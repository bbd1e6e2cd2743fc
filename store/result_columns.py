"""Columns of a result in a frame of runs, derived from the types and units of its fields: their only list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import polars as pl

from store.documents import Nats, Part, ResultDocument, Unit

Schema: TypeAlias = dict[str, type[pl.DataType] | pl.DataType]
Row: TypeAlias = dict[str, object]

TYPES: dict[object, pl.DataType] = {int: pl.Int64(), float: pl.Float64(), str: pl.String()}
FIELDS = {
    name: hint
    for name, hint in get_type_hints(ResultDocument, include_extras=True).items()
    if name not in ("digest", "version", "model_config")
}


def _columns(name: str, hint: Any) -> Iterator[tuple[str, pl.DataType]]:
    """Columns of a field. A part gives its median and its integer fields, or nothing if it has no median."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        yield name, pl.String()
    elif origin is tuple:
        yield name, pl.List(TYPES[inside[0]])
    elif inside:  # annotated or optional
        yield from _columns(name, inside[0])
    elif not issubclass(hint, Part):
        yield name, TYPES[hint]
    elif "median" in hint.model_fields:
        yield name, pl.Float64()
        yield from ((f"{name}_{each}", pl.Int64()) for each, of in hint.model_fields.items() if of.annotation is int)


def _units(hint: Any) -> set[str]:
    inner = get_args(hint) if get_origin(hint) is not Literal else ()
    own = {each.name for each in inner if isinstance(each, Unit)}
    return own.union(*map(_units, inner)) if get_origin(hint) is not Annotated else own


RESULT: Schema = {column: kind for name, hint in FIELDS.items() for column, kind in _columns(name, hint)}
RUN: Schema = {
    **RESULT,
    "environment": pl.String(),
    "gpu": pl.String(),
    "has_probes": pl.Boolean(),
    "data": pl.String(),
    "dtype": pl.String(),
    "matmul": pl.String(),
}
"""Columns of a run: those of its result, null without one; its environment and GPU as JSON; whether it has probes; and
fields of `run.json`."""
LOSSES = tuple(name for name in RESULT if name in FIELDS and _units(FIELDS[name]) & _units(Nats))
"""Columns in nats per scored target, which are rescaled if tokenizers differ."""
NUMBERS = tuple(name for name, kind in RESULT.items() if kind in (pl.Int64(), pl.Float64()))


def _place(column: str) -> tuple[str, str]:
    """The field that a column is from, and the attribute within its part."""
    if column in FIELDS:
        return column, "median"
    part = next(name for name in FIELDS if column.startswith(f"{name}_"))
    return part, column.removeprefix(f"{part}_")


_PLACES = {column: _place(column) for column in RESULT}


def result_row(result: ResultDocument) -> Row:
    """A result's value in each column."""
    known = vars(result)
    parts = {name: vars(value) for name, value in known.items() if isinstance(value, Part)}
    return {
        column: parts[field].get(inside) if field in parts else known[field]
        for column, (field, inside) in _PLACES.items()
    }
