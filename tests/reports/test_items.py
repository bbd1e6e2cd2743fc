"""Scores item by item: against scipy on the raw numbers, by simulation, and with something missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.wings.science.evidence import UNDECIDED
from ablate.wings.science.sections.claims import outcomes
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collect import collect
from reports.judge.scores import ItemDifference, _over_items, item_differences
from reports.judge.statistics.crossed import crossed
from reports.page.sections import draw
from reports.page.sections.items import verdict
from store import Store
from store.documents import LedgerRecord
from tests.ablate.wings.science.test_claims_judged import claim
from tests.reports.factory import Arm, StudyOf, arm_documents, typical

Rows = list[dict[str, Any]]


def found(summary: StudySummary, arm: str, task: str) -> ItemDifference:
    (item,) = (i for a in summary.arms if a.name == arm for i in a.items if i.task == task)
    return item


def samples(study: StudyOf, store: Store, arm: int, seed: int) -> Rows:
    path = store.samples_path(study.digest(study.arms[arm], seed), "e1")
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(study: StudyOf, store: Store, arm: int, seed: int) -> Rows:
    return [row["metrics"] for row in samples(study, store, arm, seed)]


def edited(root: Path, change: Callable[[Rows], Rows], arm: int = 1, seed: int = 0) -> StudySummary:
    """The typical study with the samples of one run changed."""
    study = typical(4)
    folder, store = study.write(root), Store(root)
    rows = change(samples(study, store, arm, seed))
    store.samples_path(study.digest(study.arms[arm], seed), "e1").write_text(
        "".join(json.dumps(r) + "\n" for r in rows)
    )
    return reports.summarise(folder)


def test_a_difference_is_that_of_the_scores(tmp_path: Path) -> None:
    """The difference is that of the scores, also of a score that is a ratio; and the seeds' differences average to
    it."""
    summary = reports.summarise(typical(4).write(tmp_path))
    base, pre, _ = summary.arms
    for score, base_score in zip(pre.scores, base.scores, strict=True):
        item = found(summary, "pre", score.task)
        assert score.value is not None
        assert base_score.value is not None
        assert item.difference == pytest.approx(score.value - base_score.value)
        assert item.difference == pytest.approx(np.mean(item.by_seed))
        assert item.seeds == (0, 1, 2)
    assert [found(summary, "pre", task).items for task in ("heldout_pairs", "heldout_text")] == [100, 6]
    text = found(summary, "pre", "heldout_text")
    assert text.low is not None
    assert text.high is not None
    assert text.difference is not None
    assert text.low < text.difference < text.high < 0
    assert base.items == ()


def test_the_document_of_run_json(tmp_path: Path) -> None:
    documents = arm_documents(reports.summarise(typical(4).write(tmp_path)))
    assert documents[0]["eval_differences"] == {}
    bits = documents[1]["eval_differences"]["heldout_text"]["bits_per_byte"]
    assert list(bits) == ["difference", "interval", "p", "items", "seeds", "reason"]
    assert bits["interval"][0] < bits["difference"] < bits["interval"][1]
    assert bits["reason"] is None
    assert documents[1]["difference"] == pytest.approx(-0.09)
    assert documents[1]["difference_interval"][1] < 0
    assert documents[1]["p"] < 0.05
    assert documents[2]["seeds_needed"] is None  # a fixed number of seeds is not to be added to


def test_p_and_interval_are_over_items_and_seeds_with_holm_over_arms_and_tasks(tmp_path: Path) -> None:
    """From the raw log-likelihoods: the crossed interval at 4 % / 4, of 2 arms × 2 tasks, all others being ties."""
    study = typical(4)
    summary, store = reports.summarise(study.write(tmp_path)), Store(tmp_path)
    log_p = np.array(
        [
            [[m["bits_per_byte"][0] for m in metrics(study, store, a, s) if "bits_per_byte" in m] for s in (0, 1, 2)]
            for a in (0, 1, 2)
        ]
    )
    table = crossed((log_p[0] - log_p[1]) / np.log(2) / 10)
    text = found(summary, "pre", "heldout_text")
    assert text.p == pytest.approx(4 * table.p() / 0.8)
    assert text.p < 0.05
    expected = table.interval(0.04 / 4)
    assert (text.low, text.high) == pytest.approx((expected.low, expected.high))
    double = found(summary, "double", "heldout_text")
    assert double.p is not None and double.p > 0.05
    assert [verdict(arm, found(summary, arm.name, "heldout_text")) for arm in summary.arms[1:]] == [
        "better",
        "inconclusive",
    ]


@pytest.mark.parametrize("grouped", [False, True])
def test_tasks_within_groups_are_a_family_of_their_own(tmp_path: Path, grouped: bool) -> None:
    data = collect(typical(4).write(tmp_path))
    data = replace(data, grouped=frozenset({"heldout_pairs"} if grouped else ()))
    found_ = item_differences(data, dict.fromkeys(("post", "pre", "double"), 0.05))
    (text,) = (each for each in found_["pre"] if each.task == "heldout_text")
    alone = item_differences(replace(data, grouped=frozenset()), dict.fromkeys(("post", "pre", "double"), 0.05))
    (of_four,) = (each for each in alone["pre"] if each.task == "heldout_text")
    assert of_four.p is not None
    assert text.p == pytest.approx(of_four.p / 4 * 2 if grouped else of_four.p)


def test_a_task_that_is_asked_later_has_what_earlier_ones_left(tmp_path: Path) -> None:
    """Twenty tasks asked one page at a time gave a false verdict in 58 % of studies."""
    data = collect(typical(4).write(tmp_path))
    levels = dict.fromkeys(("post", "pre", "double"), 0.05)
    pairs, text = (replace(data, scores=data.scores.filter(task=task)) for task in ("heldout_pairs", "heldout_text"))
    asked = tuple(
        item.test.model_copy(update={"p": 0.5})
        for items in item_differences(pairs, levels).values()
        for item in items
        if item.test
    )
    record = LedgerRecord(judged="2026-11-25T10:00:00+00:00", scale="cpu", tests=asked)
    alone, later = (item_differences(replace(text, ledger=known), levels)["pre"][0] for known in ((), (record,)))
    assert alone.p is not None and later.p is not None
    assert later.p == pytest.approx(alone.p * 0.8 / 0.1)
    losses = reports.summarise(tmp_path / "studies" / "norm_placement-cpu").tests
    assert not {test.question for test in losses} & {test.question for test in asked}


def test_what_is_not_judged_yet_has_no_p(tmp_path: Path) -> None:
    data = collect(typical(4).write(tmp_path))
    levels = dict.fromkeys(("post", "pre", "double"), 0.05)
    judged, waiting = item_differences(data, levels), item_differences(data, levels, ["double"])
    assert {item.p for item in waiting["double"]} == {None}
    assert [item.p for item in waiting["pre"]] == [item.p for item in judged["pre"]]


def test_items_of_one_document_are_one(tmp_path: Path) -> None:
    study = typical(4)
    folder, store = study.write(tmp_path), Store(tmp_path)
    for arm in study.arms:
        for seed in (0, 1, 2):
            rows = samples(study, store, study.arms.index(arm), seed)
            text = [row | {"document": row["doc_id"] // 5} for row in rows]
            store.samples_path(study.digest(arm, seed), "e1").write_text("".join(json.dumps(r) + "\n" for r in text))
    summary = reports.summarise(folder)
    assert found(summary, "pre", "heldout_pairs").items == 20
    assert found(summary, "pre", "heldout_text").items == 2


def without_text(rows: Rows) -> Rows:
    return [row for row in rows if row["task"] != "heldout_text"]


def other_item(rows: Rows) -> Rows:
    return [
        row | {"doc_hash": "another"} if row["task"] == "heldout_text" and row["doc_id"] == 2 else row for row in rows
    ]


def one_less(rows: Rows) -> Rows:
    return [row for row in rows if row["task"] != "heldout_text" or row["doc_id"] != 2]


def no_number(rows: Rows) -> Rows:
    return [row | {"metrics": {"bits_per_byte": [None, 10]}} if row["task"] == "heldout_text" else row for row in rows]


def another_score(rows: Rows) -> Rows:
    return [row | {"metrics": {"bits_per_byte": [-3.0, 10]}} if row["task"] == "heldout_text" else row for row in rows]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_text, "some of its samples are not in the store"),
        (lambda _: [], "some of its samples are not in the store"),
        (other_item, "the items are not the same in every run"),
        (one_less, "the items are not the same in every run"),
        (no_number, "some items have no individual score"),
        (another_score, "the score is not an average over items"),
    ],
)
@pytest.mark.parametrize("arm", [0, 1])
def test_what_cannot_be_compared_is_said(tmp_path: Path, change: Callable[[Rows], Rows], reason: str, arm: int) -> None:
    summary = edited(tmp_path, change, arm)
    item = found(summary, "pre", "heldout_text")
    assert (item.reason, item.difference, item.p) == (reason, None, None)
    assert f"pre: heldout_text bits_per_byte is not compared item by item: {reason}." in summary.warnings
    assert (found(summary, "double", "heldout_text").reason is None) == (arm == 1)
    assert json.dumps(reports.documents(summary), allow_nan=False)
    assert draw(summary)


def test_without_any_samples_there_is_no_figure(tmp_path: Path) -> None:
    folder = typical(4).write(tmp_path)
    for path in tmp_path.glob("*/*.samples.ndjson"):
        path.unlink()
    summary = reports.summarise(folder)
    assert "eval-differences" not in [figure.key for figure in draw(summary)]
    assert sum("item by item" in warning for warning in summary.warnings) == 4


def test_one_seed_has_an_interval_over_items_and_no_p(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", [2.4], steps=4), Arm("arm", [2.3], steps=4)])
    item = found(reports.summarise(study.write(tmp_path)), "arm", "heldout_text")
    assert item.low is not None
    assert item.p is None


def test_equal_answers_differ_by_no_more_than_items_that_were_not_asked_can(tmp_path: Path) -> None:
    """Where no item differs, the largest share of all items that may is that of Clopper and Pearson 1934."""
    alike = claim("arm", "same", "base", measure="heldout_pairs/acc", by=0.9)
    study = StudyOf([Arm("base", [2.4, 2.4], steps=4), Arm("arm", [2.4, 2.4], steps=4)], claims=[alike])
    summary = reports.summarise(study.write(tmp_path))
    item = found(summary, "arm", "heldout_pairs")
    most = stats.binomtest(0, item.items, alternative="less").proportion_ci(0.95).high
    assert (item.difference, item.p) == (0.0, None)
    assert (item.low, item.high) == pytest.approx((-most, most))
    (outcome,) = outcomes(summary)
    assert outcome.outcome == "holds"
    stricter = StudyOf(study.arms, claims=[claim("arm", "same", "base", measure="heldout_pairs/acc", by=most / 2)])
    (outcome,) = outcomes(reports.summarise(stricter.write(tmp_path / "stricter")))
    assert outcome.outcome == "cannot tell"
    alone = [Arm("base", [2.4], steps=4), Arm("arm", [2.4], steps=4)]
    (outcome,) = outcomes(reports.summarise(StudyOf(alone, claims=[alike]).write(tmp_path / "alone")))
    assert (outcome.outcome, outcome.reason) == ("cannot tell", UNDECIDED)


def test_the_interval_over_items_is_about_that_of_the_central_limit() -> None:
    differences = np.random.default_rng(2).normal(0.1, 1.4, 2000)
    low, high = _over_items(differences, np.ones(2000))
    half = 1.96 * stats.sem(differences)
    assert (low, high) == pytest.approx((differences.mean() - half, differences.mean() + half), abs=0.1 * half)
    assert _over_items(differences, np.ones(2000)) == (low, high)
