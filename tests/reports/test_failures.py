"""Seeds that stalled or diverged are counted, named and never averaged, and leave only some words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import reports
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.collect import collect
from reports.page.sections import galleries
from reports.page.wording import finding_words, method_words
from store import Store
from store.documents import SyntheticMeta
from tests.moderated import moderated
from tests.reports.factory import Arm, StudyOf, arm_documents, changed

BASE = [2.400, 2.412, 2.391, 2.405]
LOWER = [2.300, 2.313, 2.290, 2.306]
UNIFORM, UNIGRAM = 6.9315, 5.98


def summary_of(root: Path, *arms: Arm, **changes: object) -> StudySummary:
    return reports.summarise(StudyOf(arms, measured=False, text=True, **changes).write(root))  # type: ignore[arg-type]


def arm_of(summary: StudySummary, name: str) -> ArmSummary:
    return next(arm for arm in summary.arms if arm.name == name)


@pytest.mark.parametrize(("loss", "stalled", "diverged"), [(5.87, (), ()), (5.9, (3,), ()), (6.95, (), (3,))])
def test_a_seed_is_judged_by_the_text_s_reference_losses(
    tmp_path: Path, loss: float, stalled: tuple[int, ...], diverged: tuple[int, ...]
) -> None:
    arm = arm_of(summary_of(tmp_path, Arm("base", BASE), Arm("arm", [*LOWER[:3], loss])), "arm")
    assert (arm.stalled, arm.diverged) == (stalled, diverged)


def test_a_stalled_seed_is_in_no_mean_and_in_every_answer(tmp_path: Path) -> None:
    """Means leave it out; the test counts it as a bad run, and no number of further seeds would make its arm better."""
    looks = [{"seeds": 4, "alpha": 0.05}]
    summary = summary_of(tmp_path, Arm("base", BASE), Arm("post", [*LOWER[:3], 5.95]), looks=looks)
    post = arm_of(summary, "post")
    assert post.comparison is not None and post.comparison.difference is not None and post.loss is not None
    assert post.loss.values == tuple(LOWER[:3])
    assert post.comparison.difference.mean == pytest.approx(np.mean(LOWER[:3]) - np.mean(BASE))
    assert (post.verdict, post.seeds_needed) == ("inconclusive", None)
    headline = finding_words.headline(summary)
    assert headline.endswith("Means leave out failed seeds (post: 1 of 4 seeds stalled); such an arm is never better.")
    said = finding_words.sentence(summary, post)
    assert said.startswith("−0.101 (−0.124 to +∞) nats at equal FLOPs, where it trains")
    assert said.endswith("inconclusive (3 seeds, p > 0.99), because 1 of 4 seeds of post stalled.")
    header, base, row = reports.table(summary)
    assert (base[header.index("failed")], row[header.index("failed")]) == ("–", "1 of 4 seeds stalled")
    (figure,) = (each for figures in galleries(summary).values() for each in figures if each.key == "differences")
    assert figure.title == "Loss against base: post inconclusive (post: 1 of 4 seeds stalled)"
    (warning,) = summary.warnings
    assert warning.startswith(
        "post: 1 of 4 seeds stalled (seed 3: its loss is 5.950, and that of a unigram model 5.980)"
    )
    assert arm_documents(summary)[1]["stalled"] == [3]


def test_a_failed_seed_counts_as_a_bad_run_in_the_only_test_that_is_left(tmp_path: Path) -> None:
    higher = [2.500, 2.513, 2.490, 5.95]
    summary = summary_of(tmp_path, Arm("base", BASE), Arm("post", higher))
    expected = moderated({"base": BASE, "post": [*higher[:3], np.inf]}, "post", "base")
    document = arm_documents(summary)[1]
    assert document["p"] == pytest.approx(expected.p / 0.8)
    assert document["difference_interval"] == [pytest.approx(expected.interval(0.04)[0]), None]
    assert document["verdict"] == "worse"


def test_which_verdicts_failures_leave(tmp_path: Path) -> None:
    """Never better nor alike, and never worse than a baseline that has some."""
    failing, higher = [*LOWER[:3], 5.95], [*(loss + 0.2 for loss in LOWER[:3]), 5.95]
    near = [loss + 0.0001 * i for i, loss in enumerate(BASE[:3])]
    arms = [Arm("base", BASE), Arm("lower", failing), Arm("higher", higher), Arm("near", [*near, 5.95])]
    summary = summary_of(tmp_path / "a", *arms, margin=0.05)
    assert [arm.verdict for arm in summary.arms] == ["baseline", "inconclusive", "worse", "inconclusive"]
    assert "because 1 of 4 seeds of near stalled" in finding_words.sentence(summary, arm_of(summary, "near"))
    shaky, steady = Arm("base", [*BASE[:3], 5.95]), [*(loss + 0.2 for loss in LOWER)]
    arms = [shaky, Arm("lower", LOWER), Arm("higher", higher), Arm("steady", steady)]
    summary = summary_of(tmp_path / "b", *arms)
    assert [arm.verdict for arm in summary.arms] == ["baseline", "better", "inconclusive", "inconclusive"]
    assert "1 of 4 seeds stalled" in finding_words.sentence(summary, summary.arms[0])
    assert "because 1 of 4 seeds of base stalled" in finding_words.sentence(summary, summary.arms[3])


def test_an_arm_that_never_trains_has_no_difference(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Arm("base", BASE), Arm("post", [5.95, 5.96, 5.97, 5.98]))
    post = arm_of(summary, "post")
    assert (post.verdict, post.loss, post.failed) == ("stalled", None, 4)
    assert "post stalled near the loss of a unigram model" in finding_words.headline(summary)
    assert finding_words.sentence(summary, post) == "all 4 seeds stalled."


def test_where_no_run_learned_anything_none_stalled(tmp_path: Path) -> None:
    """All of them are too short."""
    summary = summary_of(tmp_path, Arm("base", [5.97, 5.98, 5.99, 5.95]), Arm("arm", [5.95, 5.96, 5.97, 5.94]))
    assert [arm.failed for arm in summary.arms] == [0, 0]


def test_twenty_steps_at_smoke_are_not_said_to_stall(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("post", [*LOWER[:3], 5.95])], measured=False, text=True)
    folder = study.write(tmp_path)
    with changed(folder / "study.json") as document:
        document["scale"] = "smoke"
    assert [arm.failed for arm in reports.summarise(folder).arms] == [0, 0]


def test_scores_of_a_stalled_seed_are_not_averaged(tmp_path: Path) -> None:
    folder = StudyOf([Arm("base", BASE), Arm("post", [*LOWER[:3], 5.95])], text=True).write(tmp_path)
    data = collect(folder)
    assert set(data.scores.filter(arm="post")["seed"]) == set(data.items.filter(arm="post")["seed"]) == {0, 1, 2}


def test_what_few_seeds_leave_possible_is_said_beside_the_method(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Arm("base", BASE), Arm("arm", LOWER))
    assert "4 seeds without a failure cannot rule out a failure rate below 53 %" in method_words.method(summary)
    assert round(1 - 0.05**0.25, 2) == 0.53


@pytest.mark.parametrize(
    ("losses", "stalled"),
    [
        ([5.882, 5.879, 5.881, 5.884], (0, 1, 2, 3)),
        ([5.881, 5.879, 5.878, 5.877], ()),
        ([5.9, 5.95, 5.7, 5.6], (0, 1)),
    ],
)
def test_no_cut_goes_between_seeds_that_ended_alike(
    tmp_path: Path, losses: list[float], stalled: tuple[int, ...]
) -> None:
    """The cut is at 5.88."""
    assert arm_of(summary_of(tmp_path, Arm("base", BASE), Arm("arm", losses)), "arm").stalled == stalled


def test_a_loss_that_still_falls_has_not_stalled(tmp_path: Path) -> None:
    slow, stuck = Arm("slow", [5.95] * 4, flattens=1), Arm("stuck", [5.96] * 4)
    summary = summary_of(tmp_path, Arm("base", BASE), slow, stuck)
    assert [arm.failed for arm in summary.arms] == [0, 0, 4]


def test_an_undertrained_arm_has_not_stalled(tmp_path: Path) -> None:
    short = Arm("short", [5.95] * 4, tokens_before=0)
    assert arm_of(summary_of(tmp_path, Arm("base", BASE), short), "short").failed == 0


@pytest.mark.parametrize(("best", "learnt"), [(0.28, False), (0.31, True)])
def test_losses_of_arms_that_only_guess_are_not_compared(tmp_path: Path, best: float, learnt: bool) -> None:
    """A twentieth of the way from 0.25 to 1 is 0.2875."""
    guessed = SyntheticMeta(digest="data0", spec={}, content="c", vocab_size=64, synthetic="mqar", chance=0.25)
    accuracies = {(arm, seed): {"accuracy": 0.25} for arm in ("base", "arm") for seed in range(4)}
    results = accuracies | {("arm", 2): {"accuracy": best}}
    study = StudyOf([Arm("base", BASE), Arm("arm", LOWER)], measured=False, results=results)
    Store(tmp_path).data("data0").path.mkdir(parents=True)
    Store(tmp_path).data("data0").write(guessed)
    summary = reports.summarise(study.write(tmp_path))
    assert (arm_of(summary, "arm").verdict == "better") == learnt
    said = "No arm learned the task: accuracy is 0.25 to 0.28, and guessing gives 0.25."
    assert (reports.headline(summary) == said) != learnt
    if not learnt:
        assert reports.withheld(summary)[0].startswith("arm: no verdict: no arm learned the task")
        assert "--set budget.flops=9.6e+11" in reports.next_steps(summary)[0].command
