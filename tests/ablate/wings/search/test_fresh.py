"""Search score against fresh seeds, in every objective, from a promoted study as a run leaves it in the store."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.fresh_seeds import FreshScore, fresh_scores, selection_bias
from ablate.wings.search.shown.search_summary import SearchSummary
from ablate.wings.search.shown.search_words import fresh_table
from store import Store
from store.documents import SpeedPoint
from tests.reports.factory import JUDGING_EXCESS, Arm, StudyOf
from tests.reports.searching import search_of

Read = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], float]
EXPECTED: dict[str, Read] = {
    "loss": lambda result, measure, evals: result.judging_loss,
    "bits_per_byte": lambda result, measure, evals: result.judging_bits_per_byte,
    "tokens_per_second": lambda result, measure, evals: result.tokens_per_second.median,
    "peak_memory_bytes": lambda result, measure, evals: result.peak_memory_bytes,
    "decode_tokens_per_second": lambda result, measure, evals: _last(measure.decode),
    "prefill_tokens_per_second": lambda result, measure, evals: _last(measure.prefill),
    "heldout_pairs.acc": lambda result, measure, evals: evals.scores["heldout_pairs"]["acc"].value,
    "parameters": lambda result, measure, evals: 900_000,
    "flops_per_token": lambda result, measure, evals: 5e6,
    "kv_bytes_per_token": lambda result, measure, evals: 1024,
}
"""Each objective of a run, read from its documents by hand."""
CHOSEN = Arm("trial_3", [2.30, 2.34, 2.38], parameters=900_000, flops_per_token=5e6, kv_bytes_per_token=1024)
STUDY = StudyOf(name="known_promoted", arms=[Arm("base", [2.5, 2.52, 2.56]), CHOSEN])


def _last(points: Sequence[SpeedPoint]) -> float:
    """At the longest context, and there at the smallest batch."""
    context = max(point.context for point in points)
    batch = min(point.batch for point in points if point.context == context)
    (point,) = (each for each in points if (each.context, each.batch) == (context, batch))
    assert point.tokens_per_second is not None
    return point.tokens_per_second.median


def read(root: Path, study: StudyOf, searched: dict[str, float]) -> tuple[FreshScore, ...]:
    study.write(root)
    scores = {arm.name: searched for arm in study.arms}
    return fresh_scores(Store(root), "known", "cpu", scores, list(searched), {})


def test_every_objective_is_the_mean_over_fresh_seeds(tmp_path: Path) -> None:
    found = read(tmp_path, STUDY, dict.fromkeys(EXPECTED, 1.0))
    document, store = STUDY.document(), Store(tmp_path)
    for name, of_run in EXPECTED.items():
        values = []
        for seed in range(3):
            digest = STUDY.digest(CHOSEN, seed)
            measure = store.read_measure(digest, str(document.measure))
            evals = store.read_evals(digest, str(document.evals))
            values.append(of_run(store.read_result(digest), measure, evals))
        (row,) = (each for each in found if (each.arm, each.objective) == ("trial_3", name))
        assert row.fresh is not None
        assert row.fresh.mean == pytest.approx(statistics.fmean(values)), name
        assert row.difference == pytest.approx(statistics.fmean(values) - 1)


def test_the_base_is_told_apart_from_what_was_chosen(tmp_path: Path) -> None:
    found = read(tmp_path, STUDY, {"loss": 2.3 + JUDGING_EXCESS, "kv_bytes_per_token": 1024})
    curse = selection_bias(found, "loss")
    assert curse is not None and curse.mean == pytest.approx(0.04)
    assert search_words.fresh(_search(found)) == [
        "loss: with fresh seeds the selected trial differs by +0.040 from the search."
        " The base, which was not selected, differs by +0.23 between the same seeds."
    ]


def test_a_promoted_trial_without_a_score_is_said_to_have_none(tmp_path: Path) -> None:
    gone = Arm("trial_7", [2.4, 2.4, 2.4], diverged=[1])
    found = read(tmp_path, StudyOf(name="known_promoted", arms=[*STUDY.arms, gone]), {"loss": 2.3})
    assert [each.fresh for each in found if each.arm == "trial_7"] == [None]
    assert "Selected trials without a score for every fresh seed: 1." in search_words.fresh(_search(found))[0]
    assert fresh_table(found).rows[-1][-2] == "not every seed has a score"


def _search(fresh: tuple[FreshScore, ...]) -> SearchSummary:
    objectives = {"loss": "minimize", "kv_bytes_per_token": "minimize"}
    return SearchSummary(search_of([], [], objectives=objectives), fresh)
