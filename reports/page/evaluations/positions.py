"""Loss by position in windows longer than the training context, averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, CurvePoint, over_seeds
from reports.judge.statistics.estimates import combined_stderr
from reports.page.evaluations import EvaluationSection
from reports.page.figures.base import (
    NEUTRAL,
    Figure,
    band,
    bucket_name,
    bucket_ticks,
    line,
    mean_and_range,
    no_windows,
    optional,
    range_of,
)
from reports.page.figures.drawing import ArmStyle, blank, label
from reports.page.wording import words
from reports.page.wording.table import frame_table
from store.documents import JsonObject, JsonScalar
from store.tables import Schema

SHOWN = 16
"""The loss axis leaves out positions before 1/SHOWN of the training context, where all models know little."""
TICKS = 8
EXTENDED = ("dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True)
class Bucket:
    """Tokens predicted from `first` to `last` tokens of context. `loss` is over seeds, in nats per token, at x =
    `last`.

    `stderr` covers stretches of text and seeds.
    """

    first: int
    last: int
    loss: CurvePoint
    stderr: float | None
    bits_per_byte: float | None


@dataclass(frozen=True)
class PositionCurve:
    """One arm in the longest windows that it read; `reasons` say, by multiple of the context, why there are no longer
    ones.

    `extension` is the scaling of its positions, if these were stretched to the length of the window.
    """

    arm: str
    context: int
    multiple: int | None
    buckets: tuple[Bucket, ...]
    reasons: tuple[tuple[int, str], ...]
    extension: str | None = None

    @property
    def name(self) -> str:
        return self.arm if self.extension is None else f"{self.arm}, {self.extension}"

    @property
    def curve(self) -> Curve:
        return Curve(self.arm, "position", tuple(bucket.loss for bucket in self.buckets))


@dataclass(frozen=True)
class Positions(EvaluationSection):
    """Loss by position: one curve per evaluated arm, and one more for each extension."""

    place: ClassVar[int] = 100
    title: ClassVar[str] = "Beyond the training context"
    schema: ClassVar[Schema] = {
        "extension": pl.String,
        "multiple": pl.Int64,
        "context": pl.Int64,
        "reason": pl.String,
        "first": pl.Int64,
        "last": pl.Int64,
        "nats_per_token": pl.Float64,
        "stderr": pl.Float64,
        "bits_per_byte": pl.Float64,
    }
    loss_columns: ClassVar[tuple[str, ...]] = ("nats_per_token", "stderr")

    curves: tuple[PositionCurve, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        curves = tuple(
            _curve(arm.name, extension, asked)
            for arm in data.study.arms
            for (extension,), asked in rows.filter(arm=arm.name).group_by("extension", maintain_order=True)
        )
        return cls(curves) if curves else None

    @classmethod
    def missed(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> tuple[str, str]:
        extension = f"_{row['extension']}" if row.get("extension") else ""
        return cls.name(), f"loss_{row['multiple']}x{extension}"

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One line per arm, in the longest windows that it read, and one per extension of its positions."""
        found = [curve for curve in self.curves if curve.buckets]
        if found:
            yield _figure(found, self.curves, summary, style)

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        """Added loss in the longest windows that each arm read."""
        scores = {(arm.name, score.metric): score for arm in summary.arms for score in arm.scores}
        for curve in self.curves:
            found = scores.get((curve.arm, f"extrapolation_gap_{curve.multiple}x"))
            if curve.extension is None and found is not None and found.value is not None:
                error = "" if found.stderr is None else f" (standard error {found.stderr:.4f})"
                way = "higher" if found.value > 0 else "lower"
                size = abs(found.value)
                cost = "unchanged" if size < 5e-5 else f"{size:.4f} {summary.unit} {way}{error}"
                where = f"in windows of {curve.multiple} × the training context"
                yield f"{curve.arm}: {where}, the loss on the same tokens is {cost}."


def _curve(arm: str, extension: Any, rows: pl.DataFrame) -> PositionCurve:
    read = rows.filter(pl.col("last").is_not_null())
    multiple = read["multiple"].max()
    longest = read.filter(pl.col("multiple") == pl.col("multiple").max())
    refused = rows.drop_nulls("reason").select("multiple", "reason").unique(maintain_order=True)
    buckets = []
    for (first, last), seeds in longest.sort("last").group_by("first", "last", maintain_order=True):
        losses, bits, end = seeds["nats_per_token"], seeds["bits_per_byte"], int(str(last))
        if losses.null_count():
            continue  # if a seed has no loss, the others' mean would be too favourable
        buckets.append(
            Bucket(
                first=int(str(first)),
                last=end,
                loss=over_seeds(end, losses.to_list()),
                stderr=combined_stderr(seeds["stderr"].to_list(), losses.to_list()),
                bits_per_byte=None if bits.null_count() else sum(bits) / len(bits),
            )
        )
    return PositionCurve(
        arm=arm,
        context=rows["context"][0],
        multiple=None if multiple is None else int(str(multiple)),
        buckets=tuple(buckets),
        reasons=tuple((int(multiple), str(reason)) for multiple, reason in refused.iter_rows()),
        extension=extension,
    )


def _figure(
    found: list[PositionCurve],
    curves: tuple[PositionCurve, ...],
    summary: StudySummary,
    style: Mapping[str, ArmStyle],
) -> Figure:
    context = found[0].context
    extensions = list(dict.fromkeys(curve.extension for curve in found if curve.extension))
    figure = blank("tokens read", f"loss ({summary.unit})")
    for curve in found:
        band(figure, style[curve.arm], curve.curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve.curve)
        if curve.extension is not None:
            dash = EXTENDED[extensions.index(curve.extension) % len(EXTENDED)]
            figure.data[-1].set({"name": label(curve.name, 60), "line": {"dash": dash, "width": 1.4}})
    figure.add_vline(x=context, line=NEUTRAL)
    ends = bucket_ticks((bucket.last for curve in found for bucket in curve.buckets), TICKS)
    figure.update_xaxes(type="log", tickmode="array", tickvals=ends, ticktext=[words.whole(end) for end in ends])
    # where a model has read enough to differ from others
    figure.update_yaxes(range=range_of([b.loss for c in found for b in c.buckets if b.last * SHOWN > c.context]))
    return Figure(
        key="positions",
        title="Loss by position",
        note=(
            "Held-out text; each point averages the positions from half of its own up to it. All arms read the same"
            " text, but each position reads different text: compare arms at one position, not positions of one arm,"
            " whose bends may be noise (standard errors are in the table). Dotted: the"
            f" training context, {context} tokens. Bands: range over seeds. The axis leaves out the first tokens: zoom"
            f" out to see them.{_stretched(extensions)}{_refusals(curves)}"
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
                    bucket_name(b.first, b.last),
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
        f" Thin lines: the same weights with rotary positions scaled ({', '.join(extensions)}) by the ratio of the"
        " window to the training context, without further training."
    )


def _refusals(curves: tuple[PositionCurve, ...]) -> str:
    """Reasons why some arms end before others: ` learned has no windows of 2× and 4×: reads at most 256 tokens.`"""
    plain = [curve for curve in curves if curve.extension is None]
    lines = [text for curve in plain for text in no_windows(curve.arm, curve.reasons)]
    without: dict[tuple[str, str], list[str]] = {}
    for curve in curves:
        for reason in dict.fromkeys(why for _, why in curve.reasons if curve.extension):
            without.setdefault((curve.arm, reason), []).append(str(curve.extension))
    # ` nope is not evaluated with ntk and yarn: no layer has rotary positions.`
    lines += [f" {arm} is not evaluated with {' and '.join(names)}: {why}." for (arm, why), names in without.items()]
    return "".join(lines)
