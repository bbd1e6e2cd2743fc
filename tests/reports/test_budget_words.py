"""Words of a report on budgets: what was matched, what matching edited, and how far runs were from their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.page.html.page import render_page
from reports.page.wording import finding_words, tables, training_words
from store import StudyFolder
from store.documents import SpentBudget, StudyArm, StudyLook
from tests.reports.factory import Arm, StudyOf, arm_documents

ARMS = [Arm("base", [2.4, 2.5, 2.45]), Arm("arm", [2.3, 2.4, 2.35], edits={"block.ffn.d_ff": "8/3x"})]


def summary_of(
    root: Path, seconds: tuple[float, float, float] = (60.0, 60.0, 60.0), of: list[Arm] = ARMS, **changes: Any
) -> StudySummary:
    """A summary of two arms whose second one trained for `seconds`; `changes` are of the study's document."""
    took = {("arm", seed): {"train_seconds": each} for seed, each in enumerate(seconds)}
    base = {("base", seed): {"train_seconds": 60.0} for seed in (0, 1, 2)}
    study = StudyOf(of, measured=False, results=took | base)
    folder = StudyFolder(study.write(root))
    folder.write(study.document().model_copy(update=changes))
    return reports.summarise(folder.path)


def with_matching(value: int) -> tuple[StudyArm, ...]:
    base, arm = StudyOf(ARMS).document().arms
    return base, arm.model_copy(update={"matching": {"block.ffn.d_ff": value}})


def test_matched_budgets_are_named_together(tmp_path: Path) -> None:
    assert training_words.matched(summary_of(tmp_path / "a", matched="flops")) == "at equal FLOPs"
    assert (
        training_words.matched(summary_of(tmp_path / "b", matched="flops and parameters"))
        == "at equal FLOPs and parameters"
    )
    said = training_words.matched(summary_of(tmp_path / "c", matched="seconds and non-embedding parameters"))
    assert said == "at equal training time and non-embedding parameters"


def test_each_part_of_what_is_matched_is_checked(tmp_path: Path) -> None:
    wide = [ARMS[0], Arm("arm", [2.3, 2.4, 2.35], parameters=1_020_000)]
    assert summary_of(tmp_path / "flops", of=wide, matched="flops").warnings == ()
    (warning,) = summary_of(tmp_path / "both", of=wide, matched="flops and parameters").warnings
    assert warning == "arm: parameters differ from the baseline's by +2.0 %."
    inside = summary_of(tmp_path / "inside", of=wide, matched="flops and non-embedding parameters")
    assert inside.warnings == ("arm: non-embedding parameters differ from the baseline's by +2.0 %.",)


def test_what_matching_edited_stands_apart_from_the_arm_s_own_edits(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, arms=with_matching(264), matched="flops and parameters")
    assert tables.edits_table(summary).rows == (
        ("base", "(none)", "", "the arm"),
        ("arm", "block.ffn.d_ff", '"8/3x"', "the arm"),
        ("arm", "block.ffn.d_ff", "264", "matching parameters"),
    )
    document = arm_documents(summary)[1]
    assert (document["edits"], document["matching"]) == ({"block.ffn.d_ff": "8/3x"}, {"block.ffn.d_ff": 264})
    page = render_page(summary)
    assert "All arms were trained at equal FLOPs and parameters." in page
    assert "matching parameters" in page


def test_runs_within_five_per_cent_of_their_time_are_shown_and_not_warned_of(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, (57.6, 60.0, 62.4), budget=SpentBudget(seconds=60.0), matched="seconds")
    assert summary.warnings == ()
    table = tables.budgets_table(summary)
    assert table.columns[-1] == "train time against 60.0 s"
    assert [row[-1] for row in table.rows] == ["0.0 %"] * 2
    faster = tables.budgets_table(
        summary_of(tmp_path, (58.2, 58.2, 58.2), budget=SpentBudget(seconds=60.0), matched="seconds")
    )
    assert faster.rows[1][-1] == "−3.0 %"


def test_runs_that_missed_their_time_are_warned_of(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, (56.4, 60.0, 66.0), budget=SpentBudget(seconds=60.0), matched="seconds")
    assert summary.warnings == ("arm: training time missed the budget of 60 s (-6.0 to +10.0 %).",)


def test_other_budgets_say_nothing_of_time(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, (10.0, 60.0, 90.0))
    assert summary.warnings == ()
    assert tables.budgets_table(summary).columns[-1] == "train time"


def test_an_arm_that_goes_on_from_another_is_not_said_to_have_spent_the_same(tmp_path: Path) -> None:
    going_on = Arm("on", [2.3, 2.4, 2.35], edits={"start.arm": "base", "start.fraction": 0.1}, steps=2)
    summary = summary_of(tmp_path, of=[Arm("base", [2.4, 2.5, 2.45]), going_on])
    said = finding_words.sentence(summary, summary.arms[1])
    assert "at equal" not in said
    assert "after 10 % of the baseline’s tokens, on top of the training of base" in said
    assert "except on, which started from another arm" in render_page(summary)
    assert not [text for text in summary.warnings if "differ from the baseline's" in text]


def test_what_bars_and_plus_minus_mean_is_said_once(tmp_path: Path) -> None:
    looks = (StudyLook(seeds=2, alpha=0.025), StudyLook(seeds=3, alpha=0.025))
    page = render_page(summary_of(tmp_path, looks=looks))
    assert page.count("Bars and ± are 95 % intervals over seeds. Those of differences from base are the ones that") == 1


def test_a_baseline_without_a_result_has_no_loss(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, of=[Arm("base", [None, None]), Arm("arm", [2.3, 2.4, 2.35])])
    assert finding_words.sentence(summary, summary.arms[0]) == "the baseline: no seed finished."
