"""Small sizes against the largest, from runs of a ladder, with scipy's correlations."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import reports
from ablate.wings.ladders.order_accuracy import accuracy_by_gap, predict
from ablate.wings.ladders.sections.size_predictions import SizePredictionsSection
from reports.page.html.page import render_page
from reports.page.wording import finding_words
from tests.reports.factory import Arm, StudyOf

ARMS = [f"arm{i}" for i in range(7)]
PAIRS = list(combinations(range(len(ARMS)), 2))
FLOPS = {"s": 1e10, "m": 1e11, "l": 1e12}


def runs_of(noise: float = 0.02) -> pl.DataFrame:
    draw = np.random.default_rng(3)
    rows = [
        {
            "rung": size,
            "axis": None if size == "l" else "size",
            "arm": arm,
            "seed": seed,
            "status": "finished",
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


def test_accuracy_by_gap_is_that_of_pairs_counted_by_hand() -> None:
    runs = runs_of()
    found = predict(runs)
    assert found is not None
    means = runs.group_by("rung", "arm").agg(pl.col("loss").mean()).sort("arm")
    small, large = (means.filter(rung=each)["loss"].to_list() for each in "sl")
    pairs = [(abs(large[i] - large[j]), (small[i] < small[j]) == (large[i] < large[j])) for i, j in PAIRS]
    assert [step.gap for step in found.by_gap[0]] == pytest.approx(sorted(gap for gap, _ in pairs))
    for step in found.by_gap[0]:
        apart = [right for gap, right in pairs if gap >= step.gap - 1e-12]
        assert (step.pairs, step.accuracy) == (len(apart), pytest.approx(np.mean(apart)))
    assert found.by_gap[0][0].accuracy == pytest.approx(found.predictions[0].accuracy.value)


def test_the_ceiling_is_what_seeds_leave_of_sizes_that_agree() -> None:
    """Both sizes have the same differences, and only the small one has noise."""
    draw, truth, seeds, noise = np.random.default_rng(5), 3 + 0.01 * np.arange(6.0), 3, 0.02
    large = np.repeat(truth[:, None], 2, axis=1)
    right, ceilings = [], []
    for _ in range(400):
        shared = draw.normal(0, 0.1, seeds)
        found = accuracy_by_gap(truth[:, None] + shared + noise * draw.normal(size=(6, seeds)), large)
        right.append([step.accuracy for step in found])
        ceilings.append([step.ceiling for step in found])
    assert np.mean(ceilings, axis=0) == pytest.approx(np.mean(right, axis=0), abs=0.02)


def test_one_seed_has_no_ceiling() -> None:
    assert {step.ceiling for step in accuracy_by_gap(np.arange(5.0)[:, None], np.arange(5.0)[:, None])} == {None}


def test_what_the_noise_of_one_size_leaves_is_counted_over_pairs_of_its_seeds() -> None:
    runs = runs_of()
    found = predict(runs)
    assert found is not None
    table = [runs.filter(rung="l", arm=arm).sort("seed")["loss"].to_list() for arm in ARMS]
    agree = [
        (table[i][one] < table[j][one]) == (table[i][other] < table[j][other])
        for one, other in combinations(range(3), 2)
        for i, j in combinations(range(len(ARMS)), 2)
    ]
    assert found.sizes[-1].repeatability == pytest.approx(np.mean(agree))
    alone = predict(runs.filter(seed=0))
    assert alone is not None and alone.sizes[-1].repeatability is None


def test_an_arm_of_which_a_run_did_not_train_is_left_out_and_named() -> None:
    stalled = pl.when(arm="arm2", rung="m", seed=1).then(pl.lit("stalled")).otherwise(pl.col("status"))
    found = predict(runs_of().with_columns(status=stalled))
    assert found is not None
    assert found.left_out == ("arm2",)
    assert found.arms == tuple(arm for arm in ARMS if arm != "arm2")
    assert found.predictions[0].arms == 6


def test_three_arms_or_one_size_say_nothing() -> None:
    assert predict(runs_of().filter(pl.col("arm").is_in(ARMS[:3]))) is None
    assert predict(runs_of().filter(rung="l")) is None
    assert predict(runs_of().clear()) is None


def test_the_page_says_how_often_the_small_size_decides_as_the_large_one(tmp_path: Path) -> None:
    """Five of six pairs of four arms keep their order; a and b swap."""
    small = [Arm(name, [loss, loss]) for name, loss in zip("abcd", (2.61, 2.60, 2.7, 2.8), strict=True)]
    large = [Arm(name, [loss, loss]) for name, loss in zip("abcd", (2.30, 2.31, 2.4, 2.5), strict=True)]
    study = StudyOf(arms=large, smaller={"small": ("size", small)}, measured=False)
    summary = reports.summarise(study.write(tmp_path))
    page = render_page(summary)
    assert "Size small (100 % of full's compute) orders 83 % (" in finding_words.headline(summary)
    assert finding_words.headline(summary).endswith(" of pairs as size full; seeds agree on 100 %.")
    assert "Does the small size predict the large one?" in page
    assert "small, at 100 % of the compute: 83 % (" in page
    assert "Kendall’s τ 0.67 (" in page
    assert 'id="size-order"' in page
    short = StudyOf(arms=large, smaller={"small": ("length", small)}, measured=False)
    assert "Does the small size" not in render_page(reports.summarise(short.write(tmp_path / "short")))


def test_a_ladder_of_many_sizes_opens_its_headline_with_them() -> None:
    runs = runs_of()
    many, two = predict(runs), predict(runs.filter(pl.col("rung") != "s"))
    assert many is not None and SizePredictionsSection(many).is_the_question
    assert two is not None and not SizePredictionsSection(two).is_the_question
