"""Groups of tasks: their items give the group's score again, and only the group is drawn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reports.judge.reading import evaluations
from reports.judge.reading.evaluations import EvaluatedRun, RunKey
from reports.page.evaluations.tasks import Tasks
from store.documents import EvalsDocument, SampleRecord, TaskGroup

SCORES = {"a": [1.0, 0.0, 1.0, 1.0], "b": [0.0, 1.0]}


def run(by_size: list[str], seed: int = 0) -> EvaluatedRun:
    items = [(task, i, score) for task, scores in SCORES.items() for i, score in enumerate(scores)]
    records = [SampleRecord(task=t, doc_id=i, doc_hash="x", metrics={"acc": score}) for t, i, score in items]
    groups = {
        "both": TaskGroup(tasks=("a", "b"), missing=("c",), by_size=tuple(by_size)),
        "all": TaskGroup(tasks=("a", "b", "d"), missing=(), by_size=tuple(by_size)),
    }
    skipped = {"c": "no data", "e": "none either"}
    document = EvalsDocument(request={}, scores={}, groups=groups, skipped=skipped)
    return EvaluatedRun(RunKey("base", seed, "0"), document, records)


@pytest.mark.parametrize(
    ("by_size", "expected"),
    [([], np.mean([np.mean(v) for v in SCORES.values()])), (["acc"], np.mean([x for v in SCORES.values() for x in v]))],
)
def test_the_items_of_a_group_average_to_its_score(by_size: list[str], expected: float) -> None:
    found = evaluations.items([run(by_size), run(by_size, seed=1)]).filter(task="both")
    assert found["item"].n_unique() == 6
    for seed in (0, 1):
        rows = found.filter(seed=seed)
        assert rows["value"].sum() / rows["weight"].sum() == pytest.approx(expected)


def test_what_is_in_a_group_and_what_was_skipped() -> None:
    assert evaluations.grouped([run([])]) == {"a", "b", "d", "both"}
    rows = Tasks.collect(SimpleNamespace(evaluated=[run([])]))["tasks"].select("task", "group").rows()
    assert rows == [("c", "both"), ("e", None)]
