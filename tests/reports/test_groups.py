"""The figure of the tasks that groups are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reports.judge.findings.study_summary import MeanScore, StudySummary
from reports.page.figures.base import Figure
from reports.page.sections import draw, summarise_study
from tests.reports.factory import Arm, StudyOf

PRE = {"blimp_wh_island": 0.6, "blimp_wh_questions_object_gap": 0.9, "blimp_anaphor_agreement": 0.4}
POST = {"blimp_wh_island": 0.8, "blimp_wh_questions_object_gap": 0.7, "blimp_anaphor_agreement": 0.45}


def summary(folder: Path, *scores: dict[str, float]) -> StudySummary:
    """Summary of two arms with these accuracies, and a perplexity that no figure of groups shows."""
    study = summarise_study(StudyOf([Arm("pre", [2.0, 2.1]), Arm("post", [2.2, 2.3])]).write(folder))
    arms = [
        replace(
            arm,
            scores=(
                *(MeanScore(task, "acc", value, 0.01, 0.02, True, 0.5, 2) for task, value in own.items()),
                MeanScore("blimp_wh_island", "perplexity", 9.0, 0.1, 0.2, False, None, 2),
            ),
        )
        for arm, own in zip(study.arms, scores, strict=True)
    ]
    return replace(study, arms=tuple(arms), grouped=frozenset(PRE))


def figure(found: StudySummary) -> Figure | None:
    return next((each for each in draw(found) if each.key == "groups"), None)


def test_a_row_for_each_task_from_the_baseline_s_best_to_its_worst(tmp_path: Path) -> None:
    shown = figure(summary(tmp_path, PRE, POST))
    assert shown is not None
    names = [name.replace("<br>", "") for name in shown.drawing.layout.yaxis.ticktext]
    assert names == ["wh_questions_object_gap", "wh_island", "anaphor_agreement"]
    pre, post = shown.drawing.data
    assert list(pre.x) == [0.9, 0.6, 0.4]
    assert list(post.x) == [0.7, 0.8, 0.45]
    assert [round(y) for y in pre.y] == [round(y) for y in post.y] == [0, 1, 2]
    assert {(shape.x0, shape.x1) for shape in shown.drawing.layout.shapes} == {(0.5, 0.5)}


def test_the_row_of_a_task_that_one_arm_lacks_has_the_other_s_point(tmp_path: Path) -> None:
    shown = figure(summary(tmp_path, PRE, {"blimp_wh_island": 0.8}))
    assert shown is not None
    assert [round(y) for y in shown.drawing.data[1].y] == [1]


def test_there_is_none_without_groups(tmp_path: Path) -> None:
    assert figure(replace(summary(tmp_path, PRE, POST), grouped=frozenset())) is None
