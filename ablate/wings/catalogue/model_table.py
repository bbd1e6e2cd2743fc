"""The table of published models: for a page, as Markdown, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.readable import large
from ablate.wings.catalogue.published import assumed_columns, preset_row, shown_tricks, text
from reports.results.document import parts_of
from zoo.presets import preset

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


def published_model(name: str) -> PublishedModel:
    """A preset's row in the table of published models."""
    chosen = preset(name)
    row = preset_row(chosen) | {"published": chosen.published_parameters}
    row["tricks"] = shown_tricks(row)
    values = {key: large(value) if key in ("parameters", "published") else text(value) for key, value in row.items()}
    return PublishedModel(
        values=values,
        parts=parts_of(chosen.spec.dump() if chosen.buildable else chosen.parts),
        assumed=frozenset(assumed_columns(chosen)),
        note=" ".join((chosen.note or "").split()),
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
