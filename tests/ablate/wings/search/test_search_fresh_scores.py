"""The answer of a search once fresh seeds are known: a score that selected a trial is not what is said of it."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from ablate.wings.search.documents import SearchBase, TrialRecord, search_folder
from ablate.wings.search.pages import search_found
from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.search_summary import SearchSummary, read_search
from ablate.wings.search.shown.search_words import closing_table
from store import Store
from tests.documents import run_of
from tests.reports.factory import JUDGING_EXCESS, Arm, StudyOf
from tests.reports.searching import RATE, search_of

TWO = {"loss": "minimize", "kv_bytes_per_token": "minimize"}
LUCKY, FRESH, OTHER, BASE = 2.3, [2.56, 2.60, 2.64], [2.50, 2.52, 2.54], [2.62, 2.66, 2.70]
ARMS = {
    "base": Arm("base", BASE, kv_bytes_per_token=300),
    "trial_0": Arm("trial_0", FRESH, kv_bytes_per_token=128),
    "trial_1": Arm("trial_1", OTHER, kv_bytes_per_token=64),
}


LONE = SearchBase(name="base", runs=(), values=None)


def trial(number: int, loss: float, cache: float = 128, best: bool = False, repeats: int | None = None) -> TrialRecord:
    """A trial of the configuration `repeats`, with a run of its own."""
    return TrialRecord(
        number=number,
        state="finished",
        best=best,
        settings={"train.lr": 0.01},
        params={"train.lr": 0.01},
        distributions={"train.lr": RATE},
        values=(loss, cache),
        reached=((loss, cache),),
        curve={},
        runs=(f"{number:02d}cd00",),
        error=None,
        repeats=repeats,
    )


TRIALS = (
    trial(0, LUCKY, best=True),
    trial(1, 2.45, cache=64, best=True),
    trial(2, 2.40, cache=300),
    trial(3, 2.41, repeats=0),
    trial(4, 2.47, cache=32, best=True),
)


def written(root: Path, promoted: tuple[str, ...], trials: tuple[TrialRecord, ...] = TRIALS, **changes: object) -> Path:
    """The folder of a search whose trials are the arms of a promoted study: a configuration is a model of its own."""
    store, base = Store(root), SearchBase(name="base", runs=("99cd00",), values=(2.6, 300.0))
    study = StudyOf(name="small_promoted", arms=[ARMS[name] for name in promoted])
    study.write(root)
    for arm in study.arms:
        for seed in range(3):
            store.write_run(run_of(study.digest(arm, seed), seed=seed, model={"of": arm.name}))
    for each in trials:
        first = each.number if each.repeats is None else each.repeats
        (digest,) = each.runs
        store.write_run(run_of(digest, seed=1000 + (each.repeats is not None), model={"of": f"trial_{first}"}))
    store.write_run(run_of("99cd00", seed=1000, model={"of": "base"}))
    folder = search_folder(store, "small", "cpu")
    changes = {"name": "small", "objectives": TWO, "base": base, **changes}
    folder.write(search_of(trials, ["train.lr"], **changes))
    return folder.path


def mean(losses: list[float]) -> float:
    """Of the losses that a search would have seen."""
    return statistics.fmean(losses) + JUDGING_EXCESS


def test_fresh_scores_are_those_of_the_first_trial_with_the_settings(tmp_path: Path) -> None:
    """Trial 3 is trial 0 with another seed: one configuration, which has the fresh score and is once on the front."""
    found = read_search(written(tmp_path, ("base", "trial_0", "trial_1")))
    values = {each.number: each.values for each in found.trials}
    assert values[0] == pytest.approx((mean(FRESH), 128))
    assert values[1] == pytest.approx((mean(OTHER), 64))
    assert values[3] == (2.41, 128)  # its own, from the seed that made it
    assert {each.arm for each in found.fresh} == {"base", "trial_0", "trial_1"}
    assert [each.number for each in found.best] == [1, 4]  # in 0's place stands 1, with less loss and a smaller cache
    assert found.dropped == (0,)
    assert {each.number for each in found.scored} == {0, 1, 2, 4}


def test_no_score_that_selected_a_trial_is_in_the_headline_of_a_front(tmp_path: Path) -> None:
    """Trial 4 was never promoted, and its 2.47 is below what the fresh seeds of the others reach."""
    said = search_words.headline(read_search(written(tmp_path, ("base", "trial_0", "trial_1"))))
    assert said.startswith(f"Trial 1 has the best loss, {mean(OTHER):.5g} ± ")
    assert " over 3 fresh seeds, trial 4 has the best kv_bytes_per_token, 32; 2 of 4 scored" in said
    before = SearchSummary(search_of(TRIALS, ["train.lr"], objectives=TWO), ())
    assert search_words.headline(before).startswith(
        "Trial 0 has the best loss, 2.3 on the seeds that selected it, trial 4"
    )


def test_the_base_as_a_trial_has_the_scores_of_the_base(tmp_path: Path) -> None:
    """Also a trial that cannot be promoted, because it is the base, is chosen by luck."""
    base = SearchBase(name="base", runs=TRIALS[0].runs, values=(LUCKY, 128.0))
    folder, store = written(tmp_path, ("base", "trial_1"), base=base), Store(tmp_path)
    for seed in range(3):
        store.write_run(run_of(f"00ab{seed:02d}", seed=seed, model={"of": "trial_0"}))
    found = read_search(folder)
    assert found.trials[0].values == pytest.approx((mean(BASE), 300))
    assert [each.arm for each in found.fresh if each.objective == "loss"] == ["base", "trial_1"]


def test_a_frame_and_the_index_have_the_same_best(tmp_path: Path) -> None:
    folder = written(tmp_path, ("base", "trial_0", "trial_1"))
    found = search_found(folder)
    assert [each.number for each in found.trials if each.best] == [1, 4]
    assert {row[0] for row in closing_table(read_search(folder)).lines[1:]} == {"1", "4"}


def test_of_a_smoke_search_no_trial_is_the_best(tmp_path: Path) -> None:
    folder = search_folder(Store(tmp_path), "small", "smoke")
    folder.write(search_of(TRIALS, ["train.lr"], name="small", scale="smoke", objectives=TWO))
    assert not any(each.best for each in search_found(folder.path).trials)
