"""Whether the order of the arms at a small size of a ladder matches that at the largest
(`ladders.order_accuracy`). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ablate.wings.ladders.order_accuracy import (
    FEWEST_ARMS,
    AccuracyFrom,
    OrderPrediction,
    accuracy_by_gap,
    prediction,
    repeatability,
)


@dataclass(frozen=True)
class SizeOrder:
    """The arms at one size: each arm's mean loss over its seeds, in the order of the study."""

    size: str
    flops: float
    """FLOPs of one run of the first arm."""
    losses: tuple[float, ...]
    repeatability: float | None
    """Share of pairs that two seeds of this size put in the same order; None with one seed."""


@dataclass(frozen=True)
class SizePredictions:
    """Accuracy with which each smaller size predicts the order at the last. `left_out`: arms with a failed or missing
    run."""

    arms: tuple[str, ...]
    left_out: tuple[str, ...]
    sizes: tuple[SizeOrder, ...]
    predictions: tuple[OrderPrediction, ...]
    """Prediction by each size but the last."""
    by_gap: tuple[tuple[AccuracyFrom, ...], ...]
    """Accuracy of each of these sizes, by the distance of arms at the last size."""


def predict(runs: pl.DataFrame) -> SizePredictions | None:
    """Predictions from one row per run: rung, axis, arm, seed, status, flops, loss. None with one size, or with too few
    arms that trained at every size. Rungs of length are ignored."""
    runs = runs.filter(pl.col("axis").is_null() | (pl.col("axis") == "size"))
    arms: list[str] = runs["arm"].unique(maintain_order=True).to_list()
    sizes: list[str] = runs["rung"].unique(maintain_order=True).to_list()
    gaps = set(runs.filter(pl.col("status") != "finished")["arm"])
    kept = [arm for arm in arms if arm not in gaps]
    if len(sizes) < 2 or len(kept) < FEWEST_ARMS:
        return None
    tables = []  # of each size (arms, seeds), over the seeds that all these arms share
    for size in sizes:
        here = [runs.filter(rung=size, arm=arm) for arm in kept]
        shared = set.intersection(*(set(each["seed"]) for each in here))
        losses = [each.filter(pl.col("seed").is_in(sorted(shared))).sort("seed")["loss"].to_list() for each in here]
        tables.append(pl.DataFrame(losses, orient="row").to_numpy())
    return SizePredictions(
        arms=tuple(kept),
        left_out=tuple(arm for arm in arms if arm in gaps),
        sizes=tuple(
            SizeOrder(
                size,
                runs.filter(rung=size, arm=arms[0])["flops"][0],
                tuple(table.mean(axis=1).tolist()),
                repeatability(table),
            )
            for size, table in zip(sizes, tables, strict=True)
        ),
        predictions=tuple(prediction(table, tables[-1]) for table in tables[:-1]),
        by_gap=tuple(accuracy_by_gap(table, tables[-1]) for table in tables[:-1]),
    )
