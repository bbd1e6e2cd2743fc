"""Measurements of prefill and decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from reports.judge.reading.evaluations import KEYS, RunKey
from store.documents import Measured, MeasuredPoint, Quartiles, SpeedPoint
from store.documents.measure import CROWDED
from store.tables import Row

MEASURES = KEYS | {
    "kind": pl.String,
    "context": pl.Int64,
    "batch": pl.Int64,
    "reason": pl.String,
    "waiting": pl.Float64,
    "median": pl.Float64,
    "q25": pl.Float64,
    "q75": pl.Float64,
    "seconds": pl.Float64,
    "seconds_to_read": pl.Float64,
    "bandwidth_utilisation": pl.Float64,
    "peak_memory_bytes": pl.Float64,
    "declared_bytes": pl.Float64,
    "allocated_bytes": pl.Float64,
}
ALONE = pl.col("waiting").fill_null(0.0) < CROWDED
"""Whether a run's measurement had the processor to itself."""


def _alone(value: pl.Expr) -> pl.Expr:
    return pl.when(ALONE).then(value)


SERVING = {
    "cache": ("cache", pl.col("allocated_bytes")),
    "prefill": ("prefill", _alone(pl.col("median"))),
    "first token": ("prefill", _alone(1000 * pl.col("seconds"))),
    "reading": ("prefill", _alone(1000 * pl.col("seconds_to_read"))),
    "prefill memory": ("prefill", pl.col("peak_memory_bytes") / 2**20),
    "decode": ("decode", _alone(pl.col("median"))),
    "output token": ("decode", _alone(1000 * pl.col("seconds"))),
    "bandwidth": ("decode", _alone(100 * pl.col("bandwidth_utilisation"))),
    "decode memory": ("decode", pl.col("peak_memory_bytes") / 2**20),
}
"""Quantity → the kind of measurement, and its value: bytes, tokens/s, ms, %, MiB. Speeds are null if the measurement
did not have the processor to itself."""


BYTES_TOLERANCE = 0.01
PLAIN = "plain"
"""The kind of cache to which others are compared."""


def measured_rows(key: RunKey, found: Measured) -> Iterator[Row]:
    """A row for each measurement. A point that did not fit in memory has a reason instead of numbers."""

    def row(kind: str, point: MeasuredPoint, values: Row) -> Row:
        at = {"kind": kind, "context": point.context, "batch": point.batch, "reason": point.reason}
        return key.row({**at, **values})

    for cache in found.cache:
        bytes_: Row = {"declared_bytes": cache.declared_bytes, "allocated_bytes": cache.allocated_bytes}
        yield row("cache", cache, bytes_)
    for prefill in found.prefill:
        read = {"seconds": _median(prefill.seconds_to_first_token), "seconds_to_read": _median(prefill.seconds_to_read)}
        yield row("prefill", prefill, {**_speed(prefill), **read})
    for decode in found.decode:
        seconds, utilisation = decode.seconds_per_output_token, decode.bandwidth_utilisation
        written = {"seconds": _median(seconds), "bandwidth_utilisation": _median(utilisation)}
        yield row("decode", decode, {**_speed(decode), **written})


def _speed(point: SpeedPoint) -> Row:
    rate = point.tokens_per_second.model_dump() if point.tokens_per_second else {}
    return {**rate, "peak_memory_bytes": point.peak_memory_bytes}


def _median(quartiles: Quartiles | None) -> float | None:
    return None if quartiles is None else quartiles.median


def wrong_bytes(rows: pl.DataFrame) -> Iterator[str]:
    """A warning for each arm and kind of `cache` whose allocated bytes differ from those declared."""
    known = rows.filter(kind="cache").drop_nulls(["declared_bytes", "allocated_bytes"])
    off = (pl.col("allocated_bytes") - pl.col("declared_bytes")).abs()
    wrong = known.filter(off > BYTES_TOLERANCE * pl.col("declared_bytes"))
    for row in wrong.unique(["arm", "cache"], keep="first", maintain_order=True).iter_rows(named=True):
        kind = "" if row["cache"] == PLAIN else f"{row['cache']} "
        yield (
            f"{row['arm']}: the {kind}cache declared {row['declared_bytes']:,.0f} bytes at context {row['context']},"
            f" batch {row['batch']}, but allocated {row['allocated_bytes']:,.0f}."
        )


LITTLE = 0.25
"""Share of the memory's bandwidth below which most of a step's time is overhead."""


def bound_by_overhead(measures: pl.DataFrame) -> Sequence[str]:
    """Arms that, decoding one sequence, use less than `LITTLE` of the bandwidth at every context measured, in order.

    With one sequence, a step multiplies every weight that it reads once, so arithmetic is not the limit on any machine.
    The part of its time that does not read weights and cache issues operations (on a GPU, launches kernels), which a
    compiled step or a larger model has less of. Williams et al. 2009, doi:10.1145/1498765.1498785.
    """
    alone = measures.filter(kind="decode", batch=1).drop_nulls("bandwidth_utilisation")
    most = alone.group_by("arm", maintain_order=True).agg(pl.max("bandwidth_utilisation"))
    return most.filter(pl.col("bandwidth_utilisation") < LITTLE)["arm"].to_list()
