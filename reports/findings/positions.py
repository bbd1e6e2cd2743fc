"""Loss by position in windows longer than training's, averaged over seeds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.findings.curves import Curve, Point, over_seeds
from reports.reading.collect import Collected
from reports.statistics.estimates import combined_stderr


@dataclass(frozen=True)
class Bucket:
    """Tokens that were predicted from `first` to `last` tokens. `loss` is over seeds, in nats per token, at `last`.

    `stderr` covers stretches of text and seeds.
    """

    first: int
    last: int
    loss: Point
    stderr: float | None
    bits_per_byte: float | None


@dataclass(frozen=True)
class PositionCurve:
    """One arm in the longest windows that it read; `reasons` say why there are no longer ones, by their multiple.

    `extension` is the scaling of its positions, where they were stretched to the length of the window.
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


def position_curves(data: Collected) -> tuple[PositionCurve, ...]:
    """One per arm that was asked, and one more for each extension."""
    arms = (arm.name for arm in data.study.arms)
    return tuple(
        _curve(arm, extension, rows)
        for arm in arms
        for (extension,), rows in data.positions.filter(arm=arm).group_by("extension", maintain_order=True)
    )


def _curve(arm: str, extension: Any, rows: pl.DataFrame) -> PositionCurve:
    """A bucket without a loss in some seed is left out: the others' mean would flatter."""
    read = rows.filter(pl.col("last").is_not_null())
    multiple = read["multiple"].max()
    longest = read.filter(pl.col("multiple") == pl.col("multiple").max())
    refused = rows.drop_nulls("reason").select("multiple", "reason").unique(maintain_order=True)
    return PositionCurve(
        arm=arm,
        context=rows["context"][0],
        multiple=None if multiple is None else int(str(multiple)),
        buckets=tuple(_buckets(longest)),
        reasons=tuple((int(multiple), str(reason)) for multiple, reason in refused.iter_rows()),
        extension=extension,
    )


def _buckets(rows: pl.DataFrame) -> Iterator[Bucket]:
    for (first, last), seeds in rows.sort("last").group_by("first", "last", maintain_order=True):
        losses = seeds["nats_per_token"]
        if losses.null_count():
            continue
        values, end = losses.to_list(), int(str(last))
        bits = seeds["bits_per_byte"]
        yield Bucket(
            first=int(str(first)),
            last=end,
            loss=over_seeds(end, values),
            stderr=combined_stderr(seeds["stderr"].to_list(), values),
            bits_per_byte=None if bits.null_count() else sum(bits) / len(bits),
        )
