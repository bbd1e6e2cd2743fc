"""Speeds are those that were measured in alternation, or there is a reason why there are none."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.api.frames import arms_frame
from ablate.wings.science.evidence import evidence
from reports.judge.findings.study_summary import StudySummary
from reports.page.html.page import render_page
from reports.page.html.templating import coded
from reports.page.wording import answers, tables
from reports.page.wording.tables import runs_table
from store import StudyFolder
from tests.reports.browsing import data_of
from tests.reports.factory import Arm, StudyOf, changed, costs_of

LOSSES = [2.40, 2.41, 2.39]
STUDY = StudyOf([Arm("base", LOSSES), Arm("slow", [2.3, 2.31, 2.29], speed=2000.0)])
SPEEDS = {arm.name: arm.speed for arm in STUDY.arms}


def sentence(summary: StudySummary) -> str:
    _, slow = answers.findings(summary)
    return slow.sentence


def test_speeds_are_compared_process_by_process(tmp_path: Path) -> None:
    """Holm over training, decoding and memory, which is the same but for the seeds: the smallest p first."""
    summary = reports.summarise(STUDY.write(tmp_path))
    found = next(arm.comparison for arm in summary.arms if arm.comparison)
    assert found.costs.training is not None
    assert found.costs.training.mean == pytest.approx(0.5)
    logs = np.log(found.costs.training.values)
    assert len(logs) == 5
    ends = [tuple(np.exp(stats.t.interval(1 - 0.05 / tests, 4, logs.mean(), stats.sem(logs)))) for tests in (3, 2)]
    assert any((found.costs.training.low, found.costs.training.high) == pytest.approx(each) for each in ends)
    assert "training 50 % slower, decoding 50 % slower" in sentence(summary)
    header, _, slow = reports.table(summary)
    assert slow[header.index("tokens/s")] == "2,000"
    assert reports.unmeasured(summary) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("old", "this study was recorded by a version that did not time arms against each other"),
        ("interrupted", "the measurement was interrupted or has not begun"),
        ("busy", "other programs used the processor for 30 % of the time"),
        ("two processes", "at least 3 complete processes are needed, 2 were measured"),
    ],
)
def test_what_does_not_count_is_nowhere(tmp_path: Path, change: str, reason: str) -> None:
    folder = replace(STUDY, processes=0 if change == "old" else 5).write(tmp_path)
    place = StudyFolder(folder)
    if change == "interrupted":
        place.costs_path("c1").unlink()
    elif change == "busy":
        place.write_costs(costs_of(SPEEDS, waited=0.3))
    elif change == "two processes":
        place.write_costs(costs_of(SPEEDS, processes=2))
    summary = reports.summarise(folder)
    command = f"ablate run norm_placement --scale cpu --store {tmp_path}"
    remedy = f"`{command}`, with nothing else running, measures them without training again."
    assert reports.unmeasured(summary) == f"Speeds not measured: {reason}. {remedy}"
    assert "speeds not measured" in sentence(summary)
    assert "slower" not in sentence(summary)
    assert "slower" not in answers.headline(summary)
    assert "tokens/s" not in reports.table(summary)[0]
    page = render_page(summary)
    assert coded(reports.unmeasured(summary)) in page
    prose = re.sub(r"<(script|pre|style|template)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "`" not in prose, prose[prose.index("`") - 80 :][:160]
    figures = data_of(page)["figures"]
    assert "decode-by-context" not in figures
    assert "trade-off" not in figures, "no other cost differs"


def test_an_arm_that_cannot_be_timed_says_why_and_nobody_is_told_to_measure_again(tmp_path: Path) -> None:
    """As learned positions end, and decoding goes beyond them; other programs held the processor now and then."""
    folder = STUDY.write(tmp_path)
    with changed(StudyFolder(folder).costs_path("c1")) as document:
        for process in document["processes"]:
            for point in process["points"]:
                point["waited"]["base"][0] = 0.2
                if point["work"] == "decoding":
                    del point["seconds"]["slow"], point["waited"]["slow"]
                    point["reasons"] = {"slow": "positions end at 128"}
    summary = reports.summarise(folder)
    assert reports.unmeasured(summary) == "Decoding speed of slow not measured: positions end at 128."
    assert "training 50 % slower" in sentence(summary) and "speeds not measured" not in sentence(summary)
    costs = StudyFolder(folder).read_costs("c1")
    assert costs is not None and not costs.is_crowded
    assert evidence(summary, "slow", "base", "decode_time").reason == "positions end at 128"


def test_arms_that_cannot_be_timed_at_all_say_why(tmp_path: Path) -> None:
    """As on a GPU, where no arm is compiled and decoding is no graph."""
    folder = STUDY.write(tmp_path)
    with changed(StudyFolder(folder).costs_path("c1")) as document:
        for process in document["processes"]:
            for point in process["points"]:
                point["seconds"], point["waited"] = {}, {}
                point["reasons"] = dict.fromkeys(("base", "slow"), "launch-bound")
    summary = reports.summarise(folder)
    said = "Training speed of slow not measured: launch-bound. Decoding speed of slow not measured: launch-bound."
    assert reports.unmeasured(summary) == said


def test_arms_that_share_a_measurement_have_the_same_speed(tmp_path: Path) -> None:
    folder = STUDY.write(tmp_path)
    with changed(StudyFolder(folder).costs_path("c1")) as document:
        for process in document["processes"]:
            for point in process["points"]:
                point["seconds"]["slow"] = point["seconds"]["base"]
    found = next(arm.comparison for arm in reports.summarise(folder).arms if arm.comparison)
    assert found.costs.training is not None
    assert (found.costs.training.low, found.costs.training.high) == (1, 1)


def test_crowded_turns_do_not_count(tmp_path: Path) -> None:
    """They are ten times as slow; without them each process has two rounds left."""
    folder = STUDY.write(tmp_path)
    with changed(StudyFolder(folder).costs_path("c1")) as document:
        for process in document["processes"]:
            for point in process["points"]:
                for place in (0, 2):
                    point["seconds"]["slow"][place] *= 10
                    point["waited"]["slow"][place] = 0.9
    summary = reports.summarise(folder)
    found = next(arm.comparison for arm in summary.arms if arm.comparison)
    assert found.costs.training is not None
    assert found.costs.training.mean == pytest.approx(0.5)


def test_a_run_beside_others_has_no_speed_of_its_own(tmp_path: Path) -> None:
    results = {
        **{("busy", seed): {"waiting": 0.25, "devices": 2} for seed in range(3)},
        **{("shared", seed): {"waiting": 0.01, "beside": 3} for seed in range(3)},
        **{("alone", seed): {"waiting": 0.04} for seed in range(3)},
    }
    arms = [Arm(name, LOSSES) for name in ("alone", "busy", "shared", "unknown")]
    summary = reports.summarise(StudyOf(arms, measured=False, results=results).write(tmp_path))
    table = runs_table(summary.runs)
    names = ("arm", "devices", "waited", "tokens/s")
    columns = [[row[table.columns.index(name)] for row in table.rows] for name in names]
    rows = {row[0]: row[1:] for row in zip(*columns, strict=True)}
    assert rows["busy"] == ("2", "25 %", "–")
    assert rows["shared"] == ("–", "–", "–")
    assert rows["alone"][:2] == ("–", "–")
    assert rows["alone"][2] == rows["unknown"][2] == "4,032"
    assert reports.unmeasured(summary) == "", "the study asks for no speeds"


@pytest.mark.parametrize("void", [False, True])
def test_every_speed_of_an_arm_is_the_one_that_was_timed_against_the_others(tmp_path: Path, void: bool) -> None:
    """Runs of the slow arm were disturbed, and are as fast as the others by the clock."""
    results = {("slow", seed): {"tokens_per_second": {"median": 4000.0}, "waiting": 0.25} for seed in range(3)}
    folder = replace(STUDY, results=results).write(tmp_path)
    if void:
        StudyFolder(folder).write_costs(costs_of(SPEEDS, waited=0.3))
    summary = reports.summarise(folder)
    (_, slow), frame = reports.documents(summary)["arms"], arms_frame(summary.arms)
    known = None if void else pytest.approx(2000.0, rel=0.02)
    assert slow["tokens_per_second"] == known
    assert frame["tokens_per_second"][1] == known
    assert not {"tokens_per_second_low", "tokens_per_second_high"} & set(frame.columns)
    assert "matmul_flops_per_second" not in summary.arms[1].means, "of undisturbed runs only"
    assert "matmul_flops_per_second" in summary.arms[0].means


def test_the_time_of_runs_is_compared_with_nothing(tmp_path: Path) -> None:
    table = tables.budgets_table(reports.summarise(STUDY.write(tmp_path)))
    assert [row[table.columns.index("train time")] for row in table.rows] == ["10.2 s", "20.4 s"]


@pytest.mark.parametrize(
    ("memory", "shown"),
    [
        ((450, 408), "429 MiB (unclear)"),
        ((408, 409), "408 MiB"),
        ((500, 501, 502), "501 MiB"),
        ((450,), "450 MiB (unclear)"),
    ],
)
def test_memory_that_may_be_the_baselines_is_marked(tmp_path: Path, memory: tuple[int, ...], shown: str) -> None:
    seeds = range(len(memory))
    known = {("base", seed): {"peak_memory_bytes": (408 + seed) * 2**20} for seed in seeds}
    results = known | {("arm", seed): {"peak_memory_bytes": memory[seed] * 2**20} for seed in seeds}
    arms = [Arm(name, LOSSES[: len(memory)]) for name in ("base", "arm")]
    header, base, arm = reports.table(reports.summarise(StudyOf(arms, results=results).write(tmp_path)))
    assert arm[header.index("peak memory")] == shown
    assert "unclear" not in base[header.index("peak memory")]


def test_identical_arms_have_ratios_around_one(tmp_path: Path) -> None:
    """Exchangeable in every process: their ln ratio is as often positive as negative."""
    arms = [Arm(name, LOSSES) for name in "abc"]
    summary = reports.summarise(StudyOf(arms).write(tmp_path))
    ratios = [arm.comparison.costs.training for arm in summary.arms if arm.comparison]
    assert all(ratio is not None and not ratio.excludes(1) for ratio in ratios)
    assert all(math.isclose(ratio.mean, 1, abs_tol=0.01) for ratio in ratios if ratio)


def test_where_a_part_was_measured_the_rest_is_called_some(tmp_path: Path) -> None:
    """A headline says *training takes 13 % longer*, and speeds are not all unknown below it."""
    folder = STUDY.write(tmp_path)
    summary = replace(reports.summarise(folder), unmeasured="other programs used the processor for 49 % of the time")
    assert reports.unmeasured(summary).startswith("Some speeds not measured: other programs")
