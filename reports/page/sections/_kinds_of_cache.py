"""Figure of kinds of cache: the costs and savings of each, by arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import CurvePoint
from reports.page.figures.base import NEUTRAL, Figure, beside_row, short, stacked
from reports.page.figures.drawing import ArmStyle, Drawing, label
from reports.page.wording import words
from reports.page.wording.table import frame_table

PANELS = {
    "cache": "bytes of the cache",
    "output token": "time per output token",
    "first token": "time to first token",
    "decode memory": "peak memory of decoding",
}
"""Kinds of `reports.page.sections._serving.SERVING` drawn as a ratio to a plain cache."""
TIMES = ("output token", "first token")
"""Kinds with a panel for every batch size."""
COLUMNS = {
    "cache": "cache (bytes)",
    "first token": "time to first token (ms)",
    "prefill": "prefill (tokens/s)",
    "output token": "time per output token (ms)",
    "decode": "decoding (tokens/s)",
    "bandwidth": "bandwidth used (%)",
    "prefill memory": "prefill peak (MiB)",
    "decode memory": "decoding peak (MiB)",
}


@dataclass(frozen=True)
class CacheCost:
    """One arm with one kind of cache, at one context × batch. `values`, and `ratios` to a plain cache of the same run,
    are over seeds, by the kinds of `reports.page.sections._serving.SERVING`."""

    arm: str
    cache: str
    context: int
    batch: int
    values: dict[str, CurvePoint]
    ratios: dict[str, CurvePoint]


@dataclass(frozen=True)
class AddedLoss:
    """Loss that a kind of cache adds when held-out text is read through it, in windows of `length` tokens.

    `half_width` is that of its 95 % interval over windows and seeds.
    """

    arm: str
    cache: str
    length: int
    added: CurvePoint
    half_width: float | None


@dataclass(frozen=True)
class KindsOfCache:
    """All kinds of cache. `kinds` begins with the plain one; `reasons` has (arm, kind, reason) for combinations not
    measured."""

    kinds: tuple[str, ...]
    costs: tuple[CacheCost, ...]
    losses: tuple[AddedLoss, ...]
    reasons: tuple[tuple[str, str, str], ...]


def figure_of(found: KindsOfCache, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure | None:
    """One panel per quantity and batch, one row per kind of cache, one point per arm."""
    kinds = found.kinds[1:]
    context = max((cost.context for cost in found.costs), default=0)
    drawn = [cost for cost in found.costs if cost.context == context and cost.cache in kinds]
    if not drawn:
        return None
    batches = sorted({cost.batch for cost in drawn})
    sinks = any(kind.startswith("sink") for kind in kinds)
    told = " Once it is full, a cache with sinks reads prompts one token at a time." if sinks else ""
    losses = {(loss.arm, loss.cache, loss.length): loss for loss in found.losses}
    alt = []
    for cost in (cost for cost in drawn if cost.batch == batches[0]):
        said = [f"{PANELS[name]} {cost.ratios[name].mean:.3g} × plain" for name in PANELS if name in cost.ratios]
        alt.append(f"{cost.arm} with {cost.cache}: {', '.join(said)}")
    return Figure(
        key="kinds-of-cache",
        title="Kinds of cache",
        note=(
            f"At {context:,} tokens, against a plain cache of the same run; left is better in every panel. Means over"
            " seeds, with their range; for the loss, 95 % intervals over windows of text and seeds. Peak memory is that"
            f" of a whole process on a CPU.{told}{''.join(_refusals(found))}"
        ),
        alt="; ".join(alt),
        drawing=_drawing(found, summary, style, drawn, batches),
        table=frame_table(
            ("arm", "kind of cache", "context", "batch", *COLUMNS.values(), f"loss added ({summary.unit})"),
            [_row(cost, losses.get((cost.arm, cost.cache, cost.context))) for cost in found.costs],
            2,
        ),
    )


def _drawing(
    found: KindsOfCache,
    summary: StudySummary,
    style: Mapping[str, ArmStyle],
    drawn: list[CacheCost],
    batches: list[int],
) -> Drawing:
    kinds = found.kinds[1:]
    asked = [(name, batch) for name in PANELS for batch in (batches if name in TIMES else batches[-1:])]
    measured = [(*each, [c for c in drawn if c.batch == each[1] and each[0] in c.ratios]) for each in asked]
    panels = [panel for panel in measured if panel[2]]
    losses = [loss for loss in found.losses if loss.cache in kinds]
    titles = []
    for name, batch, _ in panels:
        of = f", batch {batch}" if name != "cache" and len(batches) > 1 else ""
        titles.append(f"{PANELS[name]}{of} (× plain)")
    titles += [f"loss added at {losses[0].length:,} tokens ({summary.unit})"] * bool(losses)
    figure = stacked(titles, [label(kind) for kind in kinds], row=max(30, 14 * len(style)))
    for place, (name, _, costs) in enumerate(panels, 1):
        for cost in costs:
            ratio, look = cost.ratios[name], style[cost.arm]
            bars = {"array": [short(ratio.high - ratio.mean)], "arrayminus": [short(ratio.mean - ratio.low)]}
            hover = f"{label(look.label)}: %{{x:.3g}} × plain<extra></extra>"
            _point(figure, look, ratio.mean, _height(summary, kinds, cost.arm, cost.cache), bars, hover, place)
        _ratio_axis(figure, [cost.ratios[name] for cost in costs], place)
    for loss in losses:
        look, bars = style[loss.arm], {"array": [short(loss.half_width or 0)]}
        hover = f"{label(look.label)}: %{{x:.4f}}<extra></extra>"
        _point(figure, look, loss.added.mean, _height(summary, kinds, loss.arm, loss.cache), bars, hover, len(titles))
    if losses:
        figure.add_vline(x=0, line=NEUTRAL, row=len(titles), col=1)
    figure.update_yaxes(
        type="linear",
        range=[len(kinds) - 0.5, -0.5],
        tickvals=list(range(len(kinds))),
        ticktext=[label(kind).replace(", ", "<br>", 1) for kind in kinds],
    )
    _legend(figure, style, {cost.arm for cost in drawn})
    return figure


def _height(summary: StudySummary, kinds: tuple[str, ...], arm: str, cache: str) -> float:
    """Vertical place of a point: within a row, arms lie below each other in the study's order."""
    arms = [each.name for each in summary.arms]
    return kinds.index(cache) + beside_row(arms.index(arm), len(arms))


def _point(
    figure: Drawing, look: ArmStyle, x: float, y: float, bars: dict[str, list[float]], hover: str, place: int
) -> None:
    figure.add_scatter(
        x=[short(x)],
        y=[y],
        error_x={"type": "data", "symmetric": len(bars) == 1, "color": look.colour, "thickness": 1.8, **bars},
        legendgroup=look.label,
        showlegend=False,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 10},
        hovertemplate=hover,
        row=place,
        col=1,
    )


def _ratio_axis(figure: Drawing, points: list[CurvePoint], place: int) -> None:
    """Logarithmic axis, so that half and double are equally far from 1; it spans at least a half to double."""
    low = min((-1, *(math.floor(math.log2(point.low)) for point in points if point.low > 0)))
    high = max((1, *(math.ceil(math.log2(point.high)) for point in points if point.high > 0)))
    powers = range(low, high + 1, 1 + (high - low) // 6)
    figure.update_xaxes(
        type="log",
        range=[(low - 0.15) * math.log10(2), (high + 0.15) * math.log10(2)],
        tickvals=[2.0**power for power in powers],
        ticktext=[f"{2**power}×" if power >= 0 else f"1/{2**-power}×" for power in powers],
        row=place,
        col=1,
    )
    figure.add_vline(x=1, line=NEUTRAL, row=place, col=1)


def _legend(figure: Drawing, style: Mapping[str, ArmStyle], arms: set[str]) -> None:
    """Legend of the arms, once, above all panels."""
    for arm in (name for name in style if name in arms):
        look = style[arm]
        marker = {"color": look.colour, "symbol": look.symbol, "size": 10}
        named = {"name": look.label, "legendgroup": look.label, "mode": "markers", "marker": marker}
        figure.add_scatter(x=[None], y=[None], **named, row=1, col=1)
    figure.update_layout(showlegend=True, legend={"y": 1 + 30 / figure.layout.height})


def _row(cost: CacheCost, loss: AddedLoss | None) -> tuple[str, ...]:
    points = [cost.values.get(name) for name in COLUMNS]
    added = words.NONE
    if loss is not None:
        added = words.signed(loss.added.mean, 4)
        added += "" if loss.half_width is None else f" ± {loss.half_width:.4f}"
    return (
        *(cost.arm, cost.cache, words.whole(cost.context), str(cost.batch)),
        *(words.NONE if point is None else words.three_digits(point.mean) for point in points),
        added,
    )


def _refusals(found: KindsOfCache) -> Iterator[str]:
    """` mamba was not measured with int8, int4 (int8 is about keys and values).` Reasons that differ only in the kind's
    name are merged."""
    reasons: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for arm, cache, reason in found.reasons:
        alike = reason.replace(cache.partition(",")[0], "")
        reasons.setdefault((arm, alike), []).append((cache, reason))
    for (arm, _), refused in reasons.items():
        kinds = ", ".join(dict.fromkeys(cache for cache, _ in refused))
        yield f" {arm} was not measured with {kinds} ({refused[0][1].removeprefix('cache: ')})."
