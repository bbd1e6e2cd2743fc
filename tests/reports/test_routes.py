"""Through the whole report, on synthetic stores of identical arms: no route leads to a winner more often than it may.

Dropped arms, peeking, added seeds, fresh seeds and one arm after the other are in test_looks_kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.summary import summarise
from reports.judge.reading.collect import collect
from reports.judge.reading.collected import Collected
from reports.page.html.page import record
from reports.page.sections.items import verdict
from store import Store
from tests.reports.factory import Arm, StudyOf

ARMS = ("base", "a", "b", "c")
CLAIMS = {"better", "worse", "no difference"}


def kept(wrong: int, studies: int) -> bool:
    """Whether a binomial test at 1 % allows so many errors at a true rate of 5 %."""
    return stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01


def claims(summary: StudySummary) -> bool:
    return any(arm.verdict in ("better", "worse") for arm in summary.arms)


Losses = Sequence[Sequence[float | None]]


def rendered(root: Path, losses: Losses) -> StudySummary:
    """With what a page of it leaves in the ledger."""
    study = StudyOf([Arm(n, of, steps=1) for n, of in zip(ARMS, losses, strict=False)], measured=False, text=True)
    folder = study.write(root)
    summary = reports.summarise(folder)
    record(summary, Store(root))
    return summary


def watched(root: Path, draw: np.random.Generator) -> bool:
    """Runs end in any order, one in ten never: a reader looks after every eighth, and stops where something wins."""
    losses, ended = draw.normal(2.3, 0.01, (4, 4)), np.zeros((4, 4), dtype=bool)
    order = draw.permutation(16)[: 16 - draw.binomial(16, 0.1)]
    for stop in (*range(8, len(order), 8), len(order)):
        ended.flat[order[:stop]] = True
        seen = [[float(x) if e else None for x, e in zip(*row, strict=True)] for row in zip(losses, ended, strict=True)]
        if claims(rendered(root, seen)):
            return True
    return False


def stalling(root: Path, draw: np.random.Generator) -> bool:
    """Every arm stalls in a tenth of its seeds, by chance alone."""
    losses = draw.normal(2.3, 0.01, (4, 5))
    losses[draw.random((4, 5)) < 0.1] = 5.95
    return claims(rendered(root, losses.tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("route", [watched, stalling])
def test_missing_and_stalled_seeds_keep_the_error_rate(
    route: Callable[[Path, np.random.Generator], bool], tmp_path: Path
) -> None:
    draw, studies, wrong = np.random.default_rng(21), 400, 0
    for _ in range(studies):
        wrong += route(tmp_path / "store", draw)
        shutil.rmtree(tmp_path / "store")
    print(f"{route.__name__}: {wrong} of {studies} studies of identical arms name a winner")
    assert kept(wrong, studies)


def test_an_arm_with_a_failed_seed_is_never_better(tmp_path: Path) -> None:
    """Only arms without a failure win, among arms that gain 0.2 nats where they train, and fail in one seed of four."""
    draw = np.random.default_rng(3)
    for study in range(4):
        losses = draw.normal(2.3, 0.01, (4, 4))
        losses[1:] -= 0.2
        failed = draw.random((4, 4)) < 0.25
        failed[0] = False
        losses[failed] = 5.95
        summary = rendered(tmp_path / str(study), losses.tolist())
        for arm, own in zip(summary.arms[1:], failed[1:], strict=True):
            assert (arm.verdict == "better") == (not own.any())


TASKS, ITEMS, SEEDS = 12, 40, 4


def evaluated(root: Path) -> Collected:
    """A study with evaluations, of which frames are to be replaced."""
    return collect(StudyOf([Arm(n, [2.3 + 0.001 * i for i in range(SEEDS)], steps=1) for n in ARMS]).write(root))


def with_scores(data: Collected, correct: np.ndarray) -> Collected:
    """`correct` (arms, seeds, tasks, items) as what evaluations found."""
    arms, seeds, tasks, items = (index.ravel() for index in np.indices(correct.shape))
    rows = pl.DataFrame(
        {
            "arm": np.array(ARMS)[arms],
            "seed": seeds,
            "digest": "",
            "task": np.array([f"task{i}" for i in range(TASKS)])[tasks],
            "metric": "acc",
            "item": items.astype(str),
            "cluster": items.astype(str),
            "value": correct.ravel().astype(float),
            "weight": 1.0,
        }
    )
    scores = rows.group_by("arm", "seed", "digest", "task", "metric", maintain_order=True).agg(
        pl.col("value").mean(), stderr=pl.col("value").std() / ITEMS**0.5
    )
    return replace(data, items=rows, scores=scores.with_columns(higher_is_better=True, chance=pl.lit(0.5)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Precision loss")  # tasks on which all seeds differ alike
def test_many_tasks_keep_the_error_rate(tmp_path: Path) -> None:
    """3 arms × 12 tasks, accuracies on 40 questions, 4 seeds: uncorrected, most studies would find something."""
    data, draw, studies = evaluated(tmp_path), np.random.default_rng(5), 200
    wrong = single = 0
    for _ in range(studies):
        easy = draw.beta(2, 1, (TASKS, ITEMS))
        summary = summarise(with_scores(data, draw.random((4, SEEDS, TASKS, ITEMS)) < easy))
        said = [verdict(arm, item) for arm in summary.arms for item in arm.items]
        assert len(said) == 3 * TASKS
        wrong += bool({"better", "worse"} & set(said))
        by_seed = [item.by_seed for arm in summary.arms for item in arm.items]
        single += bool((stats.ttest_1samp(by_seed, 0.0, axis=1).pvalue < 0.05).any())
    print(f"many tasks: {wrong} of {studies} studies of identical arms name a winner; uncorrected {single}")
    assert kept(wrong, studies)
    assert single > studies / 3
