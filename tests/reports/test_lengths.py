"""A report says how long arms trained, what their losses compare with, and where that is too short or too high."""

from __future__ import annotations

from pathlib import Path

from reports.judge.findings.study_summary import StudySummary
from reports.page.sections import galleries, summarise_study
from reports.page.wording import finding_words
from tests.reports.factory import Arm, StudyOf

LOSSES = [2.50, 2.52, 2.49]


def summary_of(tmp_path: Path, *arms: Arm) -> StudySummary:
    """Summary of a study of these arms on 990,000 tokens."""
    return summarise_study(StudyOf(arms, text=True).write(tmp_path))


def said(summary: StudySummary) -> list[str]:
    return list(summary.sections["lengths"].sentences(summary))


def titles(summary: StudySummary) -> list[str]:
    return [figure.title for figures in galleries(summary).values() for figure in figures]


def test_steps_tokens_per_parameter_epochs_and_references_are_said(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Arm("pre", LOSSES), Arm("post", LOSSES[::-1], tokens_before=0))
    assert said(summary) == [
        "pre: 20 steps, 5.39 tokens per parameter, 0.041 epochs.",
        "post: 20 steps, 0.0546 tokens per parameter, 0.041 epochs.",
        "Reference losses of the whole text, in nats per token: uniform 6.931, unigram 5.980, bigram 4.400, gzip 3.300 "
        "(1.60 bits per byte).",
    ]


def test_headline_and_figures_say_undertrained(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Arm("pre", LOSSES), Arm("post", [2.6, 2.61, 2.6], tokens_before=0))
    said = "Undertrained: post, with 0.055 of 5 tokens per parameter and 20 of 500 steps; these losses reflect early"
    assert said in finding_words.headline(summary)
    marked = [title for title in titles(summary) if title.endswith("(undertrained)")]
    assert marked == ["Loss against pre: post worse (undertrained)"]
    slower = summary_of(
        tmp_path / "slower", Arm("pre", LOSSES), Arm("post", [2.6, 2.61, 2.6], tokens_before=0, speed=2000)
    )
    assert len([title for title in titles(slower) if title.endswith("(undertrained)")]) == 2


def test_they_do_not_of_arms_that_trained_for_long_enough(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Arm("pre", LOSSES), Arm("post", [2.6, 2.61, 2.6]))
    assert "ndertrained" not in "".join([finding_words.headline(summary), *titles(summary)])
