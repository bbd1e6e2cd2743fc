"""What each kind of cache costs and saves against a plain one, averaged over seeds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from reports.findings.curves import SERVING, Point, over_seeds
from reports.reading.collect import PLAIN, Collected
from reports.statistics.estimates import combined_stderr

AT = ["arm", "context", "batch"]


@dataclass(frozen=True)
class CacheCost:
    """One arm with one kind of cache, at one context × batch. `values` and `ratios`, to a plain cache of the same run,
    are over seeds, by the kinds of `reports.findings.curves.SERVING`."""

    arm: str
    cache: str
    context: int
    batch: int
    values: dict[str, Point]
    ratios: dict[str, Point]


@dataclass(frozen=True)
class CacheLoss:
    """What reading held-out text through a kind of cache adds to the loss, in windows of `length` tokens."""

    arm: str
    cache: str
    length: int
    added: Point
    stderr: float | None


@dataclass(frozen=True)
class Caches:
    """Nothing, where plain caches alone were measured. `kinds` begin with the plain one; `reasons` say which arm cannot
    have which kind, and why."""

    kinds: tuple[str, ...] = ()
    costs: tuple[CacheCost, ...] = ()
    losses: tuple[CacheLoss, ...] = ()
    reasons: tuple[tuple[str, str, str], ...] = ()


def caches(data: Collected) -> Caches:
    rows = data.caches
    refused = pl.concat(
        [frame.drop_nulls("reason").select("arm", "cache", "reason") for frame in (rows, data.cache_losses)]
    )
    return Caches(
        kinds=tuple(rows["cache"].unique(maintain_order=True)),
        costs=tuple(_costs(data)),
        losses=tuple(_losses(data)),
        reasons=tuple((str(a), str(c), str(r)) for a, c, r in refused.unique(maintain_order=True).iter_rows()),
    )


def _costs(data: Collected) -> Iterator[CacheCost]:
    columns = [*AT, "seed", "cache"]
    found = pl.concat(
        data.caches.filter(kind=measured)
        .select(*columns, value.cast(pl.Float64).alias("value"), quantity=pl.lit(quantity))
        .drop_nulls("value")
        for quantity, (measured, value) in SERVING.items()
    )
    key = [*AT, "seed", "quantity"]
    plain = found.filter(cache=PLAIN).select(*key, plain="value")
    both = found.join(plain, on=key, how="left", maintain_order="left")
    for (arm, context, batch, cache), rows in both.group_by(*AT, "cache", maintain_order=True):
        at = int(str(context))
        yield CacheCost(
            arm=str(arm),
            cache=str(cache),
            context=at,
            batch=int(str(batch)),
            values=_by_quantity(rows.select("quantity", "value"), at),
            ratios=_by_quantity(rows.select("quantity", value=pl.col("value") / pl.col("plain")), at),
        )


def _by_quantity(rows: pl.DataFrame, context: int) -> dict[str, Point]:
    groups = rows.drop_nulls().group_by("quantity", maintain_order=True)
    return {str(quantity): over_seeds(context, part["value"].to_list()) for (quantity,), part in groups}


def _losses(data: Collected) -> Iterator[CacheLoss]:
    """A kind without a loss in some seed is left out: the others' mean would flatter."""
    for (arm, cache, length), rows in data.cache_losses.group_by("arm", "cache", "length", maintain_order=True):
        added = rows["added"]
        if not added.null_count():
            point = over_seeds(int(str(length)), added.to_list())
            stderr = combined_stderr(rows["stderr"].to_list(), added.to_list())
            yield CacheLoss(str(arm), str(cache), int(str(length)), point, stderr)
