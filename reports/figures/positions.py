"""Figure of loss by position, past the training context."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reports.figures.base import NEUTRAL, Figure, band, line, mean_and_range, optional
from reports.figures.style import Look, blank, label
from reports.findings.positions import PositionCurve
from reports.findings.shapes import StudySummary
from reports.wording import words
from reports.wording.tables import frame_table

SHOWN = 16
"""The loss axis leaves out the places before this share of the training context: there all models know little."""
TICKS = 8
EXTENDED = ("dash", "dot", "dashdot", "longdash")


def loss_by_position(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """One line per arm, in the longest windows that it read, and one for each extension of its positions."""
    found = [curve for curve in summary.positions if curve.buckets]
    if not found:
        return None
    context = found[0].context
    extensions = list(dict.fromkeys(curve.extension for curve in found if curve.extension))
    figure = blank("tokens read", f"loss ({summary.unit})")
    for curve in found:
        band(figure, style[curve.arm], curve.curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve.curve)
        if curve.extension is not None:
            dash = EXTENDED[extensions.index(curve.extension) % len(EXTENDED)]
            figure.data[-1].update(name=label(curve.name, 60), line={"dash": dash, "width": 1.4})
    figure.add_vline(x=context, line=NEUTRAL)
    figure.update_xaxes(type="log", tickmode="array", **_ticks(found))
    figure.update_yaxes(range=_range(found))
    return Figure(
        key="positions",
        title="Loss by position",
        note=(
            "Held-out text; each point is the mean over the places from half as far up to there. All arms read the same"
            " text, but no two places do: compare lines, and see the standard errors for their bends. Dotted: the"
            f" training context, {context} tokens. Bands: range over seeds. The axis leaves out the first tokens: zoom"
            f" out to see them.{_stretched(extensions)}{_refusals(summary.positions)}"
        ),
        alt="; ".join(f"{c.name} at {c.buckets[-1].last} tokens: {c.buckets[-1].loss.mean:.4f}" for c in found),
        drawing=figure,
        table=frame_table(
            (
                "arm",
                "tokens read",
                f"loss ({summary.unit})",
                "lowest seed",
                "highest seed",
                "standard error",
                "bits per byte",
            ),
            [
                (
                    c.name,
                    _places(b.first, b.last),
                    *mean_and_range(b.loss),
                    optional(b.stderr),
                    optional(b.bits_per_byte),
                )
                for c in found
                for b in c.buckets
            ],
            2,
        ),
    )


def _stretched(extensions: list[str]) -> str:
    if not extensions:
        return ""
    return (
        f" Thin lines: the same weights with rotary positions scaled ({', '.join(extensions)}) by as much as the window"
        " is longer than the training context, not trained further."
    )


def _ticks(curves: list[PositionCurve]) -> dict[str, list[int] | list[str]]:
    """The ends of buckets, every second or third where there are many; the last is among them."""
    ends = sorted({bucket.last for curve in curves for bucket in curve.buckets})
    kept = ends[:: -math.ceil(len(ends) / TICKS)][::-1]
    return {"tickvals": kept, "ticktext": [words.whole(end) for end in kept]}


def _range(curves: list[PositionCurve]) -> list[float]:
    """From the lowest loss to the highest where a model has read enough to be told from others, with a margin."""
    points = [b.loss for c in curves for b in c.buckets if b.last * SHOWN > c.context]
    low, high = min(p.low for p in points), max(p.high for p in points)
    margin = 0.05 * (high - low) or 0.05
    return [low - margin, high + margin]


def _places(first: int, last: int) -> str:
    return words.whole(last) if first == last else f"{words.whole(first)}–{words.whole(last)}"


def _refusals(curves: tuple[PositionCurve, ...]) -> str:
    """Why some arms end before others: ` learned has no windows of 2× and 4×: positions end at 256.`"""
    lines = []
    for curve in curves:
        for reason in dict.fromkeys(why for _, why in curve.reasons if curve.extension is None):
            lengths = " and ".join(f"{multiple}×" for multiple, why in curve.reasons if why == reason)
            lines.append(f" {curve.arm} has no windows of {lengths}: {reason}.")
    return "".join((*lines, *_unscaled(curves)))


def _unscaled(curves: tuple[PositionCurve, ...]) -> Iterator[str]:
    """` nope is not read with ntk and yarn: no layer has rotary positions.`"""
    without: dict[tuple[str, str], list[str]] = {}
    for curve in curves:
        for reason in dict.fromkeys(why for _, why in curve.reasons if curve.extension):
            without.setdefault((curve.arm, reason), []).append(str(curve.extension))
    for (arm, reason), names in without.items():
        yield f" {arm} is not read with {' and '.join(names)}: {reason}."
