"""Loss of tokens that complete a bigram seen before, by how far back it is, averaged over seeds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.findings.curves import Point, over_seeds
from reports.reading.collect import Collected
from reports.statistics.estimates import Estimate, combined_stderr, estimate

PLACE = ["part", "first", "last"]


@dataclass(frozen=True)
class Targets:
    """Some of the targets: a `part` of all, or the hits at a distance from `first` to `last`.

    `loss` is over seeds, in nats per token, at `last`; `difference` is that from the baseline in pairs of seeds, which
    read the same targets, None for the baseline itself. `stderr` covers stretches of text and seeds.
    """

    part: str
    first: int | None
    last: int | None
    tokens: int
    loss: Point
    difference: Estimate | None
    stderr: float | None
    bits_per_byte: float | None


@dataclass(frozen=True)
class RecallCurve:
    """One arm in the longest windows that all arms could read. `frequent`: bigrams that occur more often in the
    training text are no hits; None for hits of all. `reasons` say why an arm read no longer windows."""

    arm: str
    context: int
    length: int
    frequent: int | None
    hits: tuple[Targets, ...]
    parts: tuple[Targets, ...]
    reasons: tuple[tuple[int, str], ...]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


def recall_curves(data: Collected) -> tuple[RecallCurve, ...]:
    """One per arm that was asked. The targets are the same in each: windows that an arm could not read are left out of
    all."""
    rows = data.recall
    read = rows.drop_nulls("part").group_by("arm").agg(pl.col("multiple").unique())["multiple"].to_list()
    common = set.intersection(*map(set, read)) if read else set()
    chosen = rows.filter(pl.col("multiple") == max(common, default=0))
    return tuple(
        _curve(arm.name, asked, chosen, data.study.baseline)
        for arm in data.study.arms
        if (asked := rows.filter(arm=arm.name)).height
    )


def _curve(arm: str, asked: pl.DataFrame, chosen: pl.DataFrame, baseline: str) -> RecallCurve:
    own, base = chosen.filter(arm=arm), chosen.filter(arm=baseline) if arm != baseline else chosen[:0]
    found = tuple(_targets(own, base))
    refused = asked.drop_nulls("reason").select("multiple", "reason").unique(maintain_order=True)
    return RecallCurve(
        arm=arm,
        context=asked["context"][0],
        length=0 if own.is_empty() else own["length"][0],
        frequent=asked["frequent"][0],
        hits=tuple(each for each in found if each.part == "distance"),
        parts=tuple(each for each in found if each.part != "distance"),
        reasons=tuple((int(multiple), str(reason)) for multiple, reason in refused.iter_rows()),
    )


def _targets(own: pl.DataFrame, base: pl.DataFrame) -> Iterator[Targets]:
    """Those without a loss in some seed are left out: the others' mean would flatter."""
    joined = own.join(
        base.select("seed", *PLACE, base="nats_per_token"), on=["seed", *PLACE], how="left", nulls_equal=True
    )
    ordered = joined.sort("part", "last", maintain_order=True)
    for (part, first, last), seeds in ordered.group_by(PLACE, maintain_order=True):
        losses = seeds["nats_per_token"]
        if losses.null_count():
            continue
        place: Any = last or 0
        bits, differences = seeds["bits_per_byte"], (losses - seeds["base"]).drop_nulls()
        yield Targets(
            part=str(part),
            first=None if first is None else int(str(first)),
            last=None if last is None else int(str(last)),
            tokens=seeds["tokens"][0],
            loss=over_seeds(place, losses.to_list()),
            difference=estimate(differences.to_list()),
            stderr=combined_stderr(seeds["stderr"].to_list(), losses.to_list()),
            bits_per_byte=None if bits.null_count() else sum(bits) / len(bits),
        )
