"""Serving costs by context: cache size, prefill and decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.comparison import speeds_at
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, CurvePoint, points_by
from reports.judge.reading.documents import StudyDocuments
from reports.page.figures.base import Figure, Switch, SwitchOption, line, short
from reports.page.figures.drawing import ArmStyle, Drawing, blank
from reports.page.sections import Section
from reports.page.sections._serving import (
    ALONE,
    MEASURES,
    PLAIN,
    SERVING,
    bound_by_overhead,
    measured_rows,
    wrong_bytes,
)
from reports.page.wording import cost_words, words
from reports.page.wording.table import frame_table
from store.documents.measure import FEWEST_PROCESSES

MIB = 2**20
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Costs(Section):
    """Serving costs. `curves` are against context, by kind, arm and batch size."""

    place: ClassVar[int] = 70

    curves: tuple[Curve, ...]
    overhead: tuple[str, ...]
    """Arms whose decoding is bound by overhead."""

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = [row | {"waiting": doc.waiting} for key, doc in documents.measured for row in measured_rows(key, doc)]
        return {"measures": pl.DataFrame(rows, schema=MEASURES)}

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        return cls(
            (*_in_alternation(data), *_of_runs(data.frames["measures"])),
            tuple(bound_by_overhead(data.frames["measures"].filter(ALONE))),
        )

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Wrong byte counts, and missing measurements, except those that an arm cannot have: an encoder only reads."""
        measures = data.frames["measures"]
        yield from wrong_bytes(measures.with_columns(cache=pl.lit(PLAIN)))
        reading = [arm.name for arm in data.study.arms if arm.kv_bytes_per_token is None]
        found = measures.filter(~pl.col("arm").is_in(reading) | (pl.col("kind") == "prefill"))
        gone = found.drop_nulls("reason").unique(["arm", "kind", "context", "batch"], maintain_order=True)
        for (arm, kind), points in gone.group_by("arm", "kind", maintain_order=True):
            where = "; ".join(f"context {c}, batch {b}" for c, b in points.select("context", "batch").iter_rows())
            yield f"{arm}: {kind} was not measured at {where} ({points['reason'][0]})."

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        declared = {
            arm.name: tuple((each.context, each.bytes) for each in arm.cache_bytes)
            for arm in summary.study.arms
            if arm.cache_bytes
        }
        cached = [curve for curve in self.curves if curve.kind == "cache"]
        smallest = min((curve.batch or 1 for curve in cached), default=1)  # smallest batch measured
        allocated = {
            curve.arm: tuple((point.x, point.mean / smallest) for point in curve.points)
            for curve in cached
            if curve.batch == smallest
        }
        sizes: dict[float, set[float]] = {}
        for context, size in chain.from_iterable([*declared.values(), *allocated.values()]):
            sizes.setdefault(context, set()).add(size)
        if any(len(each) > 1 for each in sizes.values()):  # otherwise the figure would be trivial
            yield _cache_by_context(declared, allocated, summary, style)
        told = " ".join((BANDWIDTH, cost_words.overhead(self.overhead, len(summary.arms)))).strip()
        yield from _serving(self.curves, summary, style, DECODE, "Decoding by context", told)
        yield from _serving(self.curves, summary, style, PREFILL, "Prefill by context", "")


def _of_runs(measures: pl.DataFrame) -> Iterator[Curve]:
    """Measurements within single runs: bytes, and the bandwidth used."""
    for kind in ("cache", "prefill memory", "bandwidth", "decode memory"):
        measured, value = SERVING[kind]
        rows = measures.filter(kind=measured).with_columns(value.alias("y")).drop_nulls("y")
        for (arm, batch), own in rows.group_by("arm", "batch", maintain_order=True):
            yield Curve(str(arm), kind, points_by("context", "y", own), int(str(batch)))


def _in_alternation(data: Collected) -> Iterator[Curve]:
    """Speeds measured with all arms in the same processes."""
    points = [point for process in data.costs.processes for point in process.points] if data.costs else []
    reading = [arm.name for arm in data.study.arms if arm.kv_bytes_per_token is None]
    rows = [
        {"arm": arm, "work": point.work, "context": point.context, "batch": point.batch, "speed": speed}
        for point in points
        if point.work != "training"
        for arm, speed in speeds_at(point, data.study.baseline).items()
    ]
    frame = pl.DataFrame(rows, schema=SPEEDS)
    for kind, (work, value) in SPEED_KINDS.items():
        own = frame.filter(work=work).with_columns(y=value)
        if kind in ("first token", "reading"):
            own = own.filter(pl.col("arm").is_in(reading) == (kind == "reading"))
        own = own.filter(pl.len().over("arm", "context", "batch") >= FEWEST_PROCESSES)
        for (arm, batch), curve in own.group_by("arm", "batch", maintain_order=True):
            yield Curve(str(arm), kind, points_by("context", "y", curve), int(str(batch)))


def _cache_by_context(
    declared: Mapping[str, Points],
    allocated: Mapping[str, Points],
    summary: StudySummary,
    style: Mapping[str, ArmStyle],
) -> Figure:
    """Declared bytes as lines, allocated bytes as points, both for one sequence."""
    figure = blank("context (tokens)", "KV cache (MiB per sequence)")
    for place, arm in enumerate(summary.arms):
        width = 2 + min(2.5, 10 / len(summary.arms)) * (len(summary.arms) - 1 - place)
        if arm.name in declared:
            _cache(figure, style[arm.name], declared[arm.name], "lines", width)
        if arm.name in allocated:
            _cache(figure, style[arm.name], allocated[arm.name], "markers", width)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(rangemode="tozero")
    rows = [
        (arm, words.whole(x), words.whole(y), source)
        for source, found in (("declared", declared), ("allocated", allocated))
        for arm, points in found.items()
        for x, y in points
    ]
    return Figure(
        key="cache-by-context",
        title="KV cache by context",
        note=" ".join(
            (
                "Lines: computed from the architecture. Points: measured allocations. Wider lines are drawn beneath.",
                *summary.study.conventions,
            )
        ),
        alt="; ".join(f"{row[0]} at {row[1]}: {row[2]} bytes {row[3]}" for row in rows),
        drawing=figure,
        table=frame_table(("arm", "context (tokens)", "bytes per sequence", "source"), rows),
    )


def _cache(figure: Drawing, look: ArmStyle, points: Points, mode: str, width: float) -> None:
    """One arm's bytes. Earlier arms are drawn wider, so that arms that coincide stay visible."""
    figure.add_scatter(
        x=[context for context, _ in points],
        y=[size / MIB for _, size in points],
        name=look.label,
        legendgroup=look.label,
        showlegend=mode == "lines",
        mode=mode,
        marker={"color": look.colour, "symbol": look.symbol, "size": 6 + 1.5 * width},
        line={"color": look.colour, "dash": look.dash, "width": width},
        hovertemplate=f"{'declared' if mode == 'lines' else 'allocated'} %{{y:.4g}} MiB at %{{x}}",
    )


SPEEDS = {"arm": pl.String, "work": pl.String, "context": pl.Int64, "batch": pl.Int64, "speed": pl.Float64}
SPEED_KINDS = {
    "prefill": ("prefill", pl.col("speed")),
    "first token": ("prefill", 1000 * pl.col("context") * pl.col("batch") / pl.col("speed")),
    "reading": ("prefill", 1000 * pl.col("context") * pl.col("batch") / pl.col("speed")),
    "decode": ("decoding", pl.col("speed")),
    "output token": ("decoding", 1000 * pl.col("batch") / pl.col("speed")),
}
"""Kind of a curve → the work measured, and its value: tokens/s, ms."""
DECODE = {
    "decode": "speed (tokens/s)",
    "output token": "time per output token (ms)",
    "bandwidth": "memory bandwidth used (%)",
    "decode memory": "peak memory (MiB)",
}
PREFILL = {
    "prefill": "speed (tokens/s)",
    "first token": "time to first token (ms)",
    "reading": "time to read (ms)",
    "prefill memory": "peak memory (MiB)",
}
"""Axis titles by kind of curve."""


BANDWIDTH = (
    "Memory bandwidth used: bytes of weights and cache read per token, relative to what a copy of a large tensor moves"
    " in that time; above 100 % if they fit in the processor's caches."
)


def _serving(
    curves: tuple[Curve, ...],
    summary: StudySummary,
    style: Mapping[str, ArmStyle],
    kinds: Mapping[str, str],
    title: str,
    note: str,
) -> Iterator[Figure]:
    """One line per arm and batch, and a switch between the quantities measured."""
    found = {kind: [c for c in curves if c.kind == kind and c.points] for kind in kinds}
    shown = {kind: curves for kind, curves in found.items() if curves}
    key, first = next(iter(kinds)), found[next(iter(kinds))]
    if not first:
        return
    figure = blank("context (tokens)", kinds[key])
    batches = sorted({curve.batch or 1 for curve in first})
    for curve in first:
        place = batches.index(curve.batch or 1)
        line(figure, style[curve.arm], curve, 1.2 + 1.6 * place, named=place == 0)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(rangemode="tozero")
    rows = _rows(first, shown)
    of = f"Batch {batches[0]}." if len(batches) == 1 else f"From thin to thick: batch {', '.join(map(str, batches))}."
    several = len(shown) > 1
    switches = []
    if several:
        lines = [(curve.arm, curve.batch) for curve in first]
        options = tuple(_option(lines, curves, kinds[kind]) for kind, curves in shown.items())
        switches.append(Switch("shown", "show", options))
    yield Figure(
        key=f"{key}-by-context",
        title=title,
        note=" ".join(
            (
                f"Mean over processes in which all arms took turns. {of}",
                *([note] if note and several else []),
                *summary.study.conventions,
            )
        ),
        alt="; ".join(f"{r[0]} batch {r[1]} context {r[2]}: {r[3]} tokens/s" for r in rows),
        drawing=figure,
        table=frame_table(("arm", "batch", "context (tokens)", *map(kinds.__getitem__, shown)), rows),
        switches=tuple(switches),
    )


def _option(lines: list[tuple[str, int | None]], curves: list[Curve], label: str) -> SwitchOption:
    of = {(curve.arm, curve.batch): curve.points for curve in curves}
    points = [of.get(each, ()) for each in lines]
    return SwitchOption(
        label,
        {
            "x": [[short(p.x) for p in each] for each in points],
            "y": [[short(p.mean) for p in each] for each in points],
        },
        {"yaxis.title.text": label, "yaxis.autorange": True},
    )


def _rows(first: list[Curve], shown: dict[str, list[Curve]]) -> list[tuple[str, ...]]:
    values = {(kind, c.arm, c.batch, p.x): p for kind, curves in shown.items() for c in curves for p in c.points}
    return [
        (c.arm, str(c.batch), words.whole(p.x), *(_cell(values.get((kind, c.arm, c.batch, p.x))) for kind in shown))
        for c in first
        for p in c.points
    ]


def _cell(point: CurvePoint | None) -> str:
    """A mean with its range over processes, or over seeds."""
    if point is None:
        return words.NONE
    mean, low, high = map(words.three_digits, (point.mean, point.low, point.high))
    return mean if point.seeds < 2 else f"{mean} ({low} to {high})"
