"""Attention maps, one layer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.page.evaluations import EvaluationSection
from reports.page.figures.base import Figure, Switch, SwitchOption
from reports.page.figures.drawing import ArmStyle, Drawing, blank, label
from reports.page.wording.table import frame_table
from store.tables import Schema

COLUMNS = 4
SIDE = 230
"""Height of a map in pixels."""
_COLOURS = ("247,251,255", "222,235,247", "198,219,239", "158,202,225", "107,174,214", "66,146,198", "33,113,181")
BLUES = [[place / 8, f"rgb({colour})"] for place, colour in enumerate((*_COLOURS, "8,81,156", "8,48,107"))]
"""ColorBrewer's Blues."""
MOST_WEIGHTS = 200_000
"""Most weights on a page, over all arms (about 1 MB); beyond that, only the first layers are shown."""


@dataclass(frozen=True)
class AttentionMap:
    """One layer of the arm's model of the first seed. heads: rows of 1, 2, … T weights; pieces: the T tokens."""

    arm: str
    layer: int
    pieces: tuple[str, ...]
    heads: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class Attention(EvaluationSection):
    """Attention maps; `reasons` say which arms have none, and why."""

    place: ClassVar[int] = 140
    schema: ClassVar[Schema] = {
        "layer": pl.Int64,
        "pieces": pl.List(pl.String),
        "heads": pl.List(pl.List(pl.List(pl.Float64))),
        "reason": pl.String,
    }

    maps: tuple[AttentionMap, ...]
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        first = rows.drop_nulls("layer").filter(pl.col("seed") == pl.col("seed").min().over("arm"))
        maps = tuple(
            AttentionMap(arm, layer, tuple(pieces), tuple(tuple(map(tuple, head)) for head in heads))
            for arm, layer, pieces, heads in first.select("arm", "layer", "pieces", "heads").iter_rows()
        )
        reasons = tuple(rows.drop_nulls("reason").select("arm", "reason").unique(maintain_order=True).iter_rows())
        return cls(maps, reasons) if maps or reasons else None

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One heat map per head, with a choice of arm and layer."""
        sizes = accumulate(len(each.heads) * len(each.pieces) ** 2 for each in self.maps)
        found = [each for each, size in zip(self.maps, sizes, strict=True) if size <= MOST_WEIGHTS]
        left_out = len(self.maps) - len(found)
        if not found:
            return
        heads = max(len(each.heads) for each in found)
        options = tuple(_option(each, heads, style[each.arm]) for each in found)
        more = f" {left_out} more layers are in the store." if left_out else ""
        rows = []  # means over the tokens that have a predecessor
        for each in found:
            for number, head in enumerate(each.heads):
                later = head[1:]
                means = [sum(row[place] for row in later) / len(later) for place in (-1, -2, 0)]
                rows.append((each.arm, str(each.layer), str(number), *(f"{mean:.3f}" for mean in means)))
        yield Figure(
            key="attention",
            title="What the heads attend to",
            note=(
                "One passage of held-out text. Rows are queries, columns keys, in the order of the text. Weights of a "
                "row sum to 1, or less with sinks. Shown: models of the first seed. Weights show where a head attends, "
                f"not what it does with it.{more}"
            ),
            alt=f"{len(found)} layers, up to {heads} heads each, over {len(found[0].pieces)} tokens",
            drawing=_drawing(options[0], heads),
            table=frame_table(
                ("arm", "layer", "head", "weight on itself", "on the previous token", "on the first token"), rows
            ),
            switches=(Switch("layer", "show", options),),
            wide=True,
        )

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        for arm, reason in self.reasons:
            yield f"{arm} has no attention maps: {reason}."


def _option(found: AttentionMap, heads: int, look: ArmStyle) -> SwitchOption:
    """One map per head, empty if the layer has fewer heads."""
    names = [f"{place} {label(repr(piece)[1:-1], 16)}" for place, piece in enumerate(found.pieces)]
    rows = [[[*row, *[None] * (len(names) - len(row))] for row in head] for head in found.heads]
    rows += [[] for _ in range(heads - len(rows))]
    axis = [names] * heads
    return SwitchOption(f"{look.label}, layer {found.layer}", {"z": rows, "x": axis, "y": axis}, {})


def _drawing(first: SwitchOption, heads: int) -> Drawing:
    lines = -(-heads // COLUMNS)
    # Small names, and the colour bar below the maps, since a phone has little room beside them.
    figure = Drawing.grid(lines, min(COLUMNS, heads), horizontal=0.03, vertical=0.3 / lines / 2)
    figure.name_panels([f"head {head}" for head in range(heads)], font={"size": 11})
    figure.update_layout(blank("", "").layout)
    colours = {"colorscale": BLUES, "cmin": 0, "cmax": 1}
    below = {"orientation": "h", "y": 0, "yanchor": "top", "thickness": 12}
    figure.update_layout(height=110 + SIDE * lines, coloraxis={**colours, "colorbar": below})
    figure.update_xaxes(showticklabels=False, showgrid=False, title={"text": ""})
    figure.update_yaxes(showticklabels=False, showgrid=False, title={"text": ""}, autorange="reversed")
    for head in range(heads):
        figure.add_heatmap(
            **{name: values[head] for name, values in first.traces.items()},
            coloraxis="coloraxis",
            hovertemplate="%{y} attends to %{x}: %{z:.3f}<extra></extra>",
            row=head // COLUMNS + 1,
            col=head % COLUMNS + 1,
        )
    return figure
