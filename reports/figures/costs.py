"""Figures of cost: cache and speed against context."""

from __future__ import annotations

import plotly.graph_objects as go

from reports import words
from reports.figures.base import Figure, line
from reports.figures.style import Look, blank
from reports.findings import StudySummary
from reports.tables import frame_table

MIB = 2**20
Points = tuple[tuple[float, float], ...]


def cache_by_context(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """Declared bytes as lines, allocated bytes as points, both for one sequence."""
    declared = {arm.name: arm.cache_bytes for arm in summary.arms if arm.cache_bytes}
    allocated = _allocated(summary)
    if not declared and not allocated:
        return None
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
        note="Lines: declared by the architecture. Points: allocated, as measured. Wider lines lie below others.",
        alt="; ".join(f"{row[0]} at {row[1]}: {row[2]} bytes {row[3]}" for row in rows),
        drawing=figure,
        table=frame_table(("arm", "context (tokens)", "bytes per sequence", "source"), rows),
    )


def _allocated(summary: StudySummary) -> dict[str, Points]:
    """(context, bytes per sequence) at the smallest batch that was measured."""
    curves = [curve for curve in summary.contexts if curve.kind == "cache"]
    smallest = min((curve.batch or 1 for curve in curves), default=1)
    return {
        curve.arm: tuple((point.x, point.mean / smallest) for point in curve.points)
        for curve in curves
        if curve.batch == smallest
    }


def _cache(figure: go.Figure, look: Look, points: Points, mode: str, width: float) -> None:
    """One arm's bytes; arms that coincide stay visible because earlier ones are drawn wider."""
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


def decode_by_context(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    return _speed(summary, style, "decode", "Decode speed by context")


def prefill_by_context(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    return _speed(summary, style, "prefill", "Prefill speed by context")


def _speed(summary: StudySummary, style: dict[str, Look], kind: str, title: str) -> Figure | None:
    curves = [curve for curve in summary.contexts if curve.kind == kind and curve.points]
    if not curves:
        return None
    figure = blank("context (tokens)", f"{kind} (tokens/s)")
    widths = {batch: i for i, batch in enumerate(sorted({curve.batch or 1 for curve in curves}))}
    for curve in curves:
        place = widths[curve.batch or 1]
        line(figure, style[curve.arm], curve, 1.2 + 1.6 * place, named=place == 0, bars=True)
    figure.update_yaxes(rangemode="tozero")
    rows = [
        (c.arm, str(c.batch), words.whole(p.x), *map(words.whole, (p.mean, p.low, p.high)))
        for c in curves
        for p in c.points
    ]
    return Figure(
        key=f"{kind}-by-context",
        title=title,
        note=f"Mean over seeds of each run's median; bars: range over seeds. {_batches(list(widths))}",
        alt="; ".join(f"{r[0]} batch {r[1]} context {r[2]}: {r[3]} tokens/s" for r in rows),
        drawing=figure,
        table=frame_table(("arm", "batch", "context (tokens)", "tokens/s", "lowest seed", "highest seed"), rows),
    )


def _batches(batches: list[int]) -> str:
    if len(batches) == 1:
        return f"Batch {batches[0]}."
    return f"From thin to thick: batch {', '.join(map(str, batches))}."
