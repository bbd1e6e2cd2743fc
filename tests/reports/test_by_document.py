"""Verdicts are over seeds and held-out documents, wherever the store has a loss for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import reports
from ablate.store import Store
from ablate.store.documents import ItemLoss
from reports.findings.by_document import Gap, gap_of
from reports.findings.shapes import StudySummary
from reports.statistics.crossed import Crossed, crossed
from reports.wording import method_words
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


def test_the_interval_is_over_seeds_and_documents(tmp_path: Path) -> None:
    """At the 4 % of a first judgement."""
    losses = tables(noise=0.04)
    summary = written(tmp_path, losses, margin=0.1)
    table = crossed(losses["arm"] - losses["base"], TOKENS)
    found = summary.arms[1].comparison
    assert found is not None and found.difference is not None
    expected = table.interval(0.04)
    assert (found.difference.low, found.difference.high) == pytest.approx((expected.low, expected.high))
    assert found.p_holm == pytest.approx(table.p() / 0.8)
    assert found.p_equivalence == pytest.approx(table.p_within(0.1) / 0.8)
    assert found.difference.mean == pytest.approx(table.mean)
    assert "over seeds and held-out documents" in method_words.method(summary)


def test_a_difference_that_few_documents_make_is_inconclusive(tmp_path: Path) -> None:
    """Every seed has it, so that a test over seeds alone calls it sure."""
    losses = tables(noise=0.2)
    assert written(tmp_path / "alone", losses, leave_out=("arm", 0)).arms[1].verdict in ("better", "worse")
    summary = written(tmp_path / "both", losses)
    assert summary.arms[1].verdict == "inconclusive"


def test_what_the_documents_do_not_say_is_left_to_the_seeds() -> None:
    losses = tables(noise=0.04)
    frame = pl.DataFrame(
        [
            {"arm": arm, "seed": s, "item": i, "nats": float(table[s, i] * TOKENS[i]), "weight": float(TOKENS[i])}
            for arm, table in losses.items()
            for s in range(SEEDS)
            for i in range(DOCUMENTS)
        ]
    )
    gaps = losses["arm"] - losses["base"]
    differences = dict(enumerate(((gaps * TOKENS).sum(axis=1) / TOKENS.sum()).tolist()))
    pair = ("arm", "base")
    seeds, values = list(differences), list(differences.values())

    def table_of(known: pl.DataFrame, values: list[float]) -> Crossed | None:
        found = gap_of(known, pair, seeds, values)
        assert found is not None
        return found.table

    whole = table_of(frame, values)
    assert whole is not None
    assert whole.p() == pytest.approx(crossed(gaps, TOKENS).p())
    assert table_of(frame, [1.0, *values[1:]]) is None
    assert table_of(frame.filter(~((pl.col("arm") == "arm") & (pl.col("item") == 2))), values) is None
    few = [table[:, :9] for table in losses.values()]
    of_few = ((few[1] - few[0]) * TOKENS[:9]).sum(axis=1) / TOKENS[:9].sum()
    assert table_of(frame.filter(pl.col("item") < 9), of_few.tolist()) is None
    assert table_of(frame.with_columns(pl.col("weight") + (pl.col("arm") == "arm")), values) is None
    assert gap_of(frame, pair, seeds[:1], values[:1]) is None
    assert gap_of(frame, pair, seeds[:2], [0.1, 0.1]) is None


def test_what_a_study_can_see_counts_the_noise_of_documents() -> None:
    """The spread of rows is that of the interval: with as many columns as there are, nothing is left of theirs."""
    values = (0.01, 0.03, 0.02, 0.05)
    alone = Gap(values, None)
    same = Gap(values, crossed(np.repeat(np.array(values)[:, None], 40, axis=1)))
    assert same.sd == pytest.approx(alone.sd) == pytest.approx(np.std(values, ddof=1))
    columns = np.random.default_rng(0).normal(0, 0.1, 40)
    noisy = Gap(values, crossed(np.array(values)[:, None] + columns - columns.mean()))
    assert noisy.sd == pytest.approx(np.sqrt(np.var(values, ddof=1) + 4 * np.var(columns, ddof=1) / 40))
