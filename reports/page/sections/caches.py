"""Costs and savings of each kind of cache against a plain one, averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, CurvePoint, over_seeds
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.evaluations import KEYS, RunKey
from reports.judge.statistics.estimates import score_half_width
from reports.page.figures.base import Figure
from reports.page.figures.drawing import ArmStyle
from reports.page.sections import Section
from reports.page.sections._kinds_of_cache import AddedLoss, CacheCost, KindsOfCache, figure_of
from reports.page.sections._serving import MEASURES, PLAIN, SERVING, measured_rows, wrong_bytes
from store.documents import LossThroughCache, Measured, MeasureDocument
from store.tables import Row

CACHES = MEASURES | {"cache": pl.String}
"""Measurements of every kind of cache, including plain, if other kinds were measured."""
CACHE_LOSSES = KEYS | {
    "cache": pl.String,
    "length": pl.Int64,
    "reason": pl.String,
    "nats_per_token": pl.Float64,
    "added": pl.Float64,
    "stderr": pl.Float64,
}
"""`added` is relative to the loss through a plain cache, and `stderr` is its standard error."""
AT = ["arm", "context", "batch"]


@dataclass(frozen=True)
class Caches(Section):
    """Costs of caches, for studies that measured kinds other than the plain one."""

    place: ClassVar[int] = 75

    found: KindsOfCache

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        measured = documents.measured
        costs = []
        for key, found in measured:
            kinds: dict[str, Measured] = {PLAIN: found, **found.caches} if found.caches else {}
            costs += [{**row, "cache": cache} for cache, each in kinds.items() for row in measured_rows(key, each)]
        losses = [row for key, found in measured for row in _cache_loss_rows(key, found)]
        return {
            "caches": pl.DataFrame(costs, schema=CACHES),
            "cache_losses": pl.DataFrame(losses, schema=CACHE_LOSSES),
        }

    @classmethod
    def losses(cls) -> Mapping[str, Sequence[str]]:
        return {"cache_losses": ("nats_per_token", "added", "stderr")}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows, losses = data.frames["caches"], data.frames["cache_losses"]
        refused = pl.concat([frame.drop_nulls("reason").select("arm", "cache", "reason") for frame in (rows, losses)])
        reasons = ((str(a), str(c), str(r)) for a, c, r in refused.unique(maintain_order=True).iter_rows())
        added = []
        for (arm, cache, length), own in losses.group_by("arm", "cache", "length", maintain_order=True):
            more = own["added"]
            if not more.null_count():  # if a seed has no loss, the mean of the others would be too favourable
                point = over_seeds(int(str(length)), more.to_list())
                half = score_half_width(own["stderr"].to_list(), more.to_list())
                added.append(AddedLoss(str(arm), str(cache), int(str(length)), point, half))
        found = KindsOfCache(
            kinds=tuple(rows["cache"].unique(maintain_order=True)),
            costs=tuple(_costs(rows)),
            losses=tuple(added),
            reasons=tuple(reasons),
        )
        return cls(found) if found.kinds else None

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        yield from wrong_bytes(data.frames["caches"].filter(pl.col("cache") != PLAIN))

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        figure = figure_of(self.found, summary, style)
        if figure is not None:
            yield figure


def _cache_loss_rows(key: RunKey, found: MeasureDocument) -> Iterator[Row]:
    losses = found.cache_loss
    if losses is None:
        return
    for cache, loss in (losses.kinds or {PLAIN: LossThroughCache(reason=losses.reason)}).items():
        yield key.row(
            {
                "cache": cache,
                "length": losses.length,
                "reason": loss.reason,
                "nats_per_token": loss.nats_per_token.value if loss.nats_per_token else None,
                "added": loss.added.value if loss.added else None,
                "stderr": loss.added.stderr if loss.added else None,
            }
        )


def _costs(caches: pl.DataFrame) -> Iterator[CacheCost]:
    columns = [*AT, "seed", "cache"]
    found = pl.concat(
        caches.filter(kind=measured)
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


def _by_quantity(rows: pl.DataFrame, context: int) -> dict[str, CurvePoint]:
    groups = rows.drop_nulls().group_by("quantity", maintain_order=True)
    return {str(quantity): over_seeds(context, part["value"].to_list()) for (quantity,), part in groups}
