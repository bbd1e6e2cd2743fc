"""The table of published models: for a page, as Markdown, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ablate.readable import large
from zoo.settings.axis import Spec

Row: TypeAlias = dict[str, Any]
"""A preset's values, as `ablate zoo --json` prints them."""
PATHS = {
    "norm": "block.norm.kind",
    "placement": "block.norm_placement.kind",
    "topology": "block.topology",
    "position": "block.mixer.position.kind",
    "activation": "block.ffn.kind",
    "attention": "block.mixer.kv_heads",
}
"""The columns of a row that name a part, with the part's path in a spec."""
IN_COLUMNS = ("kv_heads=", "experts=", "shared_experts=", "top_k=")
"""Prefixes of the tricks that the columns of attention and experts show."""
COLUMNS = {
    "name": "model",
    "year": "year",
    "norm": "norm",
    "placement": "placement",
    "topology": "block",
    "position": "positions",
    "attention": "attention",
    "activation": "feed-forward",
    "experts": "experts",
    "tricks": "other choices",
    "parameters": "parameters",
    "published": "published",
    "source": "source",
}
"""Column titles by key."""
ASSUMED = "*"
LEGEND = (
    "`*`: assumed, since the source does not say. Parameters are counted from the spec; published counts are the "
    "source's own. `GQA (8)` has eight key-value heads; `×7` counts layers."
)


@dataclass(frozen=True)
class PublishedModel:
    """A row of the table of models: values by column, the columns that its source does not state, and a note."""

    values: Mapping[str, str]
    parts: frozenset[str]
    """Its parts, by setting and kind."""
    assumed: frozenset[str] = frozenset()
    note: str = ""

    @property
    def name(self) -> str:
        return self.values["name"]


def published_model(row: Row) -> PublishedModel:
    """The row in the table of published models."""
    counts = {"parameters": large(row["parameters"]), "published": large(row["published_parameters"])}
    # tricks that no other column shows; `top_k` without experts is one, that of sparse attention
    alone = ("top_k=",) if not row["experts"] else ()
    tricks = [trick for trick in row["tricks"] if not trick.startswith(IN_COLUMNS) or trick.startswith(alone)]
    shown = {**row, **counts, "tricks": tricks}
    assumed = (
        column
        for column, path in PATHS.items()
        if any(path == each or path.startswith(f"{each}.") for each in row["assumed"])
    )
    return PublishedModel(
        values={key: text(shown[key]) for key in COLUMNS},
        parts=frozenset(row["parts"]),
        assumed=frozenset(assumed),
        note=" ".join((row["note"] or "").split()),
    )


def rows(models: Sequence[PublishedModel]) -> list[list[str]]:
    """One row of text per model, oldest first."""
    return [[cell(model, key) for key in COLUMNS] for model in oldest_first(models)]


def oldest_first(models: Sequence[PublishedModel]) -> list[PublishedModel]:
    return sorted(models, key=lambda model: (model.values["year"], model.name))


def cell(model: PublishedModel, key: str) -> str:
    return model.values[key] + (ASSUMED if key in model.assumed else "")


def as_csv(models: Sequence[PublishedModel]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS.values(), "note"])
    writer.writerows([*row, model.note] for row, model in zip(rows(models), oldest_first(models), strict=True))
    return out.getvalue()


def as_markdown(models: Sequence[PublishedModel]) -> str:
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS), *rows(models)]
    table = "\n".join(f"| {' | '.join(each.replace('|', '&#124;') for each in line)} |" for line in lines)
    notes = [f"- {model.name}: {model.note}" for model in oldest_first(models) if model.note]
    return "\n".join(["# Published models", "", LEGEND, "", table, "", "## Notes", "", *notes, ""])


def text(value: Any) -> str:
    """A value for display: a part by its kind, True as `yes`, None as nothing."""
    if isinstance(value, Spec):
        return str(getattr(value, "kind", value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)
