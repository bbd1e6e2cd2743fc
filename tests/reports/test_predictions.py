"""Small sizes against the largest, from runs of a ladder, with scipy's correlations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from reports.findings.predictions import predict

ARMS = [f"arm{i}" for i in range(7)]
FLOPS = {"s": 1e10, "m": 1e11, "l": 1e12}


def runs_of(noise: float = 0.02) -> pl.DataFrame:
    draw = np.random.default_rng(3)
    rows = [
        {
            "rung": size,
            "axis": None if size == "l" else "size",
            "arm": arm,
            "seed": seed,
            "flops": flops,
            "loss": 3 + 0.01 * place + noise * draw.normal(),
        }
        for size, flops in FLOPS.items()
        for place, arm in enumerate(ARMS)
        for seed in range(3 if size == "l" else 2)
    ]
    return pl.DataFrame(rows)


def test_agreement_is_that_of_pairs_counted_by_hand_and_of_scipy() -> None:
    runs = runs_of()
    found = predict(runs)
    assert found is not None
    assert [size.size for size in found.sizes] == ["s", "m", "l"]
    means = runs.group_by("rung", "arm").agg(pl.col("loss").mean()).sort("arm")
    assert 0 < found.predictions[0].accuracy.value < 1
    for size, prediction in zip("sm", found.predictions, strict=True):
        small, large = (means.filter(rung=each)["loss"].to_list() for each in (size, "l"))
        agree = [(small[i] < small[j]) == (large[i] < large[j]) for i, j in combinations(range(len(ARMS)), 2)]
        assert prediction.accuracy.value == pytest.approx(np.mean(agree))
        assert prediction.kendall.value == pytest.approx(stats.kendalltau(small, large).statistic)
        assert prediction.spearman.value == pytest.approx(stats.spearmanr(small, large).statistic)


def test_an_arm_without_a_loss_somewhere_is_left_out_and_named() -> None:
    gone = pl.when(arm="arm2", rung="m", seed=1).then(None).otherwise(pl.col("loss"))
    found = predict(runs_of().with_columns(loss=gone))
    assert found is not None
    assert found.left_out == ("arm2",)
    assert found.arms == tuple(arm for arm in ARMS if arm != "arm2")
    assert found.predictions[0].arms == 6


def test_three_arms_or_one_size_say_nothing() -> None:
    assert predict(runs_of().filter(pl.col("arm").is_in(ARMS[:3]))) is None
    assert predict(runs_of().filter(rung="l")) is None
    assert predict(runs_of().clear()) is None
