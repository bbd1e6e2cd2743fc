"""A speed that was not measured alone is marked wherever it stands, and the mark explained."""

from __future__ import annotations

from pathlib import Path

import pytest

import reports
from ablate.store import Store
from reports.pages.page import render_page
from reports.wording import answers
from reports.wording.tables import runs_table
from tests.reports.browsing import data_of
from tests.reports.factory import Arm, StudyOf, changed

LOSSES = [2.40, 2.41, 2.39]


def test_runs_that_waited_or_shared_a_gpu_are_marked(tmp_path: Path) -> None:
    results = {
        **{("busy", seed): {"waiting": 0.25, "devices": 2} for seed in range(3)},
        **{("shared", seed): {"waiting": 0.01, "beside": 3} for seed in range(3)},
        **{("alone", seed): {"waiting": 0.04} for seed in range(3)},
    }
    arms = [Arm(name, LOSSES) for name in ("alone", "busy", "shared", "unknown")]
    summary = reports.summarise(StudyOf(arms, measured=False, results=results).write(tmp_path))
    header, *rows = reports.table(summary)
    marked = [row[0] for row in rows if row[header.index("tokens/s")].endswith(" †")]
    assert marked == ["busy", "shared"]
    said = (
        "† Not measured alone, so that the speed is not the arm's own: its runs waited for a processor for up to 25 %"
        " of their training, and up to 4 runs shared a GPU."
    )
    assert reports.measured_beside(summary) == said
    assert said.replace("'", "&#39;") in render_page(summary)
    table = runs_table(summary)
    columns = [[row[table.columns.index(name)] for row in table.rows] for name in ("devices", "waited")]
    assert set(zip(*columns, strict=True)) == {("–", "–"), ("2", "25 %")}


def test_seeds_that_compute_the_same_at_unlike_speeds_were_not_measured_alone(tmp_path: Path) -> None:
    """The ratio of all seeds, 2 throughout, would be a finding."""
    speeds = {seed: {"tokens_per_second": {"median": median}} for seed, median in enumerate((2000.0, 1200.0, 1800.0))}
    results = {("slow", seed): each for seed, each in speeds.items()}
    arms = [Arm("base", LOSSES), Arm("slow", [2.3, 2.31, 2.29])]
    summary = reports.summarise(StudyOf(arms, measured=False, results=results).write(tmp_path))
    assert reports.measured_beside(summary).endswith(
        "seeds of one arm, which compute the same, differ up to 1.7× in speed."
    )
    assert "slower" not in answers.headline(summary)
    (_, slow) = answers.findings(summary)
    assert "training speed not known †" in slow.sentence
    figure = data_of(render_page(summary))["figures"]["trade-off"]
    assert "time" not in figure["stamp"]["title"]
    assert [each["layout"]["xaxis.title.text"].partition("<br>")[0] for each in figure["switches"]["x"]] == [
        "peak memory in training",
        "training time per token †",
    ]


def test_what_was_measured_alone_bears_no_mark(tmp_path: Path) -> None:
    summary = reports.summarise(StudyOf([Arm("a", LOSSES), Arm("b", LOSSES)], measured=False).write(tmp_path))
    assert reports.measured_beside(summary) == ""
    assert "†" not in render_page(summary)
    assert not {"devices", "waited"} & set(runs_table(summary).columns)


@pytest.mark.parametrize(("waiting", "known"), [(None, True), (0.04, True), (0.3, False)])
def test_decoding_that_was_measured_beside_other_work_is_compared_with_nothing(
    tmp_path: Path, waiting: float | None, known: bool
) -> None:
    study = StudyOf([Arm("base", LOSSES), Arm("slow", [2.3, 2.31, 2.29], speed=2000.0)])
    folder, store = study.write(tmp_path), Store(tmp_path)
    for seed in range(3):
        with changed(store.measure_path(study.digest(study.arms[1], seed), "m1")) as document:
            document["waiting"] = waiting
    summary = reports.summarise(folder)
    (_, slow) = answers.findings(summary)
    assert ("decoding" in slow.sentence) == known
    figure = data_of(render_page(summary))["figures"]["trade-off"]
    shown = [each["layout"]["xaxis.title.text"] for each in figure["switches"]["x"]]
    assert any(title.startswith("decoding time") for title in shown) == known
    warned = [each for each in summary.warnings if each.startswith("slow: other programs had the processor for 30 %")]
    assert len(warned) == (not known)
