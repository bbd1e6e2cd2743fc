"""Losses in one unit: nats per token (per target, where not all are asked for), or, where arms have
tokenizers of their own, nats per byte of held-out text."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from reports.reading.collect import Collected

LOSSES = ("loss", "train_loss", "validation_loss", "nats_per_token", "added", "stderr")


def comparable(data: Collected) -> Collected:
    """The same with losses per byte where the study compares those.

    nats per byte = nats per token · held-out tokens / held-out bytes = bits per byte · ln 2. The factor is the
    tokenizer's, so that an arm's runs share it; training losses are scaled by it too, though they are of other text.
    """
    if data.study.per != "byte":
        return data
    finished = data.runs.filter(status="finished")
    factor = (pl.col("bits_per_byte") * math.log(2) / pl.col("loss")).mean()
    factors = finished.group_by("arm").agg(factor.alias("factor"))

    def scaled(frame: pl.DataFrame) -> pl.DataFrame:
        given = [name for name in LOSSES if name in frame.columns]
        joined = frame.join(factors, on="arm", how="left", maintain_order="left")
        return joined.with_columns(pl.col(name) * pl.col("factor") for name in given).drop("factor")

    return replace(
        data,
        runs=scaled(data.runs),
        curves=scaled(data.curves),
        positions=scaled(data.positions),
        cache_losses=scaled(data.cache_losses),
        ladder=scaled(data.ladder),
    )
