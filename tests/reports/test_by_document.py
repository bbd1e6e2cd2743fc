"""Verdicts are over seeds and held-out documents, wherever the store has a loss for each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import document_error
from reports.page.wording import method_words
from store import Store
from store.documents import ItemLoss
from tests.moderated import moderated
from tests.regression import least_squares
from tests.reports.factory import Arm, StudyOf

TOKENS = np.array([30, 200, 80, 120, 50, 90, 40, 160, 70, 110])
SEEDS, DOCUMENTS = 4, len(TOKENS)


def tables(noise: float) -> dict[str, np.ndarray]:
    """Losses of two arms (seeds, documents); `noise` is of what a document does to the difference."""
    draw = np.random.default_rng(8)
    base = 2.4 + draw.normal(0, 0.3, DOCUMENTS) + draw.normal(0, 0.01, (SEEDS, 1))
    return {"base": base, "arm": base - 0.05 + draw.normal(0, noise, DOCUMENTS) + draw.normal(0, 0.002, (SEEDS, 1))}


def written(
    root: Path,
    losses: Mapping[str, np.ndarray],
    leave_out: tuple[str, int] | None = None,
    margin: float | None = None,
) -> StudySummary:
    means = {name: (table * TOKENS).sum(axis=1) / TOKENS.sum() for name, table in losses.items()}
    study = StudyOf(
        [Arm(name, values.tolist(), steps=2) for name, values in means.items()], measured=False, margin=margin
    )
    folder, store = study.write(root), Store(root)
    for arm in study.arms:
        for seed in range(SEEDS):
            digest = study.digest(arm, seed)
            result = store.read_result(digest)
            assert result is not None
            nats = losses[arm.name][seed] * TOKENS
            items = [
                ItemLoss(item=i, nats=float(x), targets=int(n), bytes=None)
                for i, (x, n) in enumerate(zip(nats, TOKENS, strict=True))
            ]
            store.write_result(result, [] if (arm.name, seed) == leave_out else items)
    return reports.summarise(folder)


def documents_alone(losses: Mapping[str, np.ndarray]) -> float:
    """The standard error of the difference over documents, beyond what cells scatter: by least squares on dummies, of
    linearised ratios y → ȳ + (w / w̄)(y − ȳ)."""
    gaps, relative = losses["arm"] - losses["base"], TOKENS / TOKENS.mean()
    mean = (gaps * relative).mean()
    values = (mean + relative * (gaps - mean)).ravel().tolist()
    cells = list(np.ndindex(gaps.shape))
    left, freedom = least_squares(cells, values)
    without_documents, _ = least_squares([(seed, 0) for seed, _ in cells], values)
    square = (without_documents - left) / (DOCUMENTS - 1) - left / freedom
    return math.sqrt(max(square, 0.0) / gaps.size)


def test_the_interval_is_over_seeds_and_documents(tmp_path: Path) -> None:
    """At the 4 % of a first judgement, by Monte Carlo of both errors."""
    losses = tables(noise=0.08)
    summary = written(tmp_path, losses, margin=0.1)
    by_seed = ((losses["arm"] - losses["base"]) * TOKENS).sum(axis=1) / TOKENS.sum()
    found, shared = summary.arms[1].comparison, documents_alone(losses)
    assert found is not None and found.difference is not None and found.gap is not None
    assert found.gap.shared == pytest.approx(shared)
    draw = np.random.default_rng(1)
    means = {name: ((table * TOKENS).sum(axis=1) / TOKENS.sum()).tolist() for name, table in losses.items()}
    of_seeds = moderated(means, "arm", "base").better
    assert of_seeds is not None
    moved = of_seeds.error * draw.standard_t(of_seeds.freedom, 2_000_000) + shared * draw.normal(size=2_000_000)
    low, high = by_seed.mean() + np.quantile(moved, [0.02, 0.98])
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high), abs=1e-4)
    assert found.p_holm == pytest.approx(2 * np.mean(moved > abs(by_seed.mean())) / 0.8, rel=0.03)
    assert found.p_equivalence == pytest.approx(np.mean(moved > 0.1 - abs(by_seed.mean())) / 0.8, rel=0.03)
    assert found.difference.mean == pytest.approx(by_seed.mean())
    assert "held-out documents" in method_words.method(summary)


def test_a_difference_that_few_documents_make_is_inconclusive(tmp_path: Path) -> None:
    """Every seed has it, so that a test over seeds alone calls it sure."""
    losses = tables(noise=0.2)
    assert written(tmp_path / "alone", losses, leave_out=("arm", 0)).arms[1].verdict in ("better", "worse")
    summary = written(tmp_path / "both", losses)
    assert summary.arms[1].verdict == "inconclusive"


def frame_of(losses: Mapping[str, np.ndarray], tokens: np.ndarray) -> pl.DataFrame:
    """Sums of losses by arm, seed and document."""
    return pl.DataFrame(
        [
            {"arm": arm, "seed": s, "item": i, "nats": float(table[s, i] * tokens[i]), "weight": float(tokens[i])}
            for arm, table in losses.items()
            for s, i in np.ndindex(table.shape)
        ]
    )


def test_what_the_documents_do_not_say_is_left_to_the_seeds() -> None:
    losses = tables(noise=0.04)
    frame = frame_of(losses, TOKENS)
    gaps = losses["arm"] - losses["base"]
    values = ((gaps * TOKENS).sum(axis=1) / TOKENS.sum()).tolist()
    pair, seeds = ("arm", "base"), list(range(SEEDS))
    assert document_error(frame, pair, seeds, values) == pytest.approx(documents_alone(losses))
    assert document_error(None, pair, seeds, values) == 0
    assert document_error(frame, pair, seeds, [1.0, *values[1:]]) == 0
    assert document_error(frame.filter(~((pl.col("arm") == "arm") & (pl.col("item") == 2))), pair, seeds, values) == 0
    of_few = ((gaps * TOKENS)[:, :9].sum(axis=1) / TOKENS[:9].sum()).tolist()
    assert document_error(frame.filter(pl.col("item") < 9), pair, seeds, of_few) == 0
    uneven = frame.with_columns(pl.col("weight") + (pl.col("arm") == "arm"))
    assert document_error(uneven, pair, seeds, values) == 0
    assert document_error(frame, pair, seeds[:1], values[:1]) == 0
    assert document_error(frame, pair, seeds[1:], values[1:]) > 0  # seeds that both arms have


def test_documents_add_what_they_scatter_beyond_cells() -> None:
    """σ/√C in the mean of 400 tables, and nothing where all documents say the same."""
    draw = np.random.default_rng(0)

    def error(gaps: np.ndarray) -> float:
        frame = frame_of({"arm": gaps, "base": np.zeros_like(gaps)}, np.ones(60))
        return document_error(frame, ("arm", "base"), range(3), gaps.mean(axis=1).tolist())

    drawn = (
        0.02 + draw.normal(0, 0.01, (3, 1)) + draw.normal(0, 0.04, 60) + draw.normal(0, 0.05, (3, 60))
        for _ in range(400)
    )
    assert np.mean([error(gaps) ** 2 for gaps in drawn]) == pytest.approx(0.04**2 / 60, rel=0.1)
    assert error(np.repeat(np.array([0.01, 0.03, 0.02])[:, None], 60, axis=1)) == 0
