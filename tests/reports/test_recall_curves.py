"""Associative recall in the report: means over seeds by hand, and targets that are the same for all arms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from reports.judge.findings.study_summary import StudySummary
from reports.page.evaluations.recall import Recall
from reports.page.figures.base import Figure
from reports.page.html.page import render_page
from reports.page.sections import draw, summarise_study
from store import Store
from store.documents import SampleRecord, Score
from tests.reports.factory import Arm, StudyOf, changed, shown

CONTEXT = 64
ENDS = [1, 2, 4, 64]
ARMS = [Arm("attention", [2.4, 2.5, 2.6], steps=4), Arm("mamba", [2.3, 2.5, 2.7], steps=4)]
PAIRS = stats.ttest_rel([2.3, 2.5, 2.7], [2.4, 2.5, 2.6]).confidence_interval(0.95)
GAP = 1.5
"""Nats by which mamba's losses, hits included, exceed attention's on average."""


def part(name: str, loss: float | None, tokens: int = 100, **ends: int) -> dict[str, Any]:
    bits = None if loss is None else loss / math.log(2) / 3
    shared = {"tokens": tokens, "bytes": 3 * tokens, "stderr": 0.03, "bits_per_byte_stderr": 0.01}
    return {"part": name, **ends, "nats_per_token": loss, "bits_per_byte": bits, **shared}


def window(multiple: int, loss: float, ends: list[int]) -> list[dict[str, Any]]:
    firsts = [1, *(end + 1 for end in ends[:-1])]
    parts = [part("ar_hits", loss, 100 * len(ends)), part("frequent", loss - 1, 200), part("unseen", loss + 3, 400)]
    distances = [part("distance", loss + e / 64, first=f, last=e) for f, e in zip(firsts, ends, strict=True)]
    return [{"multiple": multiple, "length": multiple * CONTEXT, **each} for each in (*parts, *distances)]


def written(root: Path, hits: bool = True, frequent: int | None = 1250) -> Path:
    """mamba has been refused windows of 2 ×."""
    study = StudyOf(ARMS)
    folder, store = study.write(root), Store(root)
    for arm in ARMS:
        for seed, base in enumerate(arm.losses):
            assert base is not None
            loss = base + GAP * (arm.name == "mamba")
            longer = window(2, loss, [*ENDS, 128])
            if arm.name == "mamba":
                longer = [{"multiple": 2, "length": 128, "reason": "reads at most <64> tokens"}]
            rows = [*window(1, loss, ENDS), *longer]
            if not hits:
                unseen = [row for row in window(1, loss, ENDS) if row["part"] in ("frequent", "unseen")]
                rows = [{**unseen[0], **part("ar_hits", None, 0)}, *unseen]
            with changed(store.evals_path(study.digest(arm, seed), "e1")) as document:
                about = {"context": CONTEXT, "stretches": 4, "frequent": frequent}
                document["sections"]["recall"] = {"about": about, "rows": rows}
    return folder


def figure_of(summary: StudySummary) -> Figure:
    return next(figure for figure in draw(summary) if figure.key == "recall")


LINE, POINT = "lines+markers", "markers"


def places_of(figure: Figure) -> dict[tuple[str, str], int]:
    """Index of each trace by arm and mode."""
    return {(trace.name, trace.mode): place for place, trace in enumerate(figure.drawing.data)}


def test_curves_are_means_over_seeds_of_the_windows_that_all_could_read(tmp_path: Path) -> None:
    attention, mamba = shown(summarise_study(written(tmp_path)), Recall).curves
    assert (attention.length, mamba.length) == (64, 64)
    assert [hits.last for hits in attention.hits] == ENDS
    assert attention.reasons == ()
    assert mamba.reasons == ((2, "reads at most <64> tokens"),)
    found = mamba.hits[-1]
    assert (found.first, found.loss.seeds, found.tokens) == (5, 3, 100)
    assert found.loss.mean == pytest.approx(2.5 + GAP + 1)
    assert (found.loss.low, found.loss.high) == pytest.approx((2.3 + GAP + 1, 2.7 + GAP + 1))
    over_seeds = stats.sem([2.3, 2.5, 2.7]) * stats.t.ppf(0.975, 2)
    assert found.half_width == pytest.approx(math.hypot(stats.norm.ppf(0.975) * 0.03, over_seeds))
    assert found.difference is not None
    assert found.difference.values == pytest.approx((GAP - 0.1, GAP, GAP + 0.1))
    assert (found.difference.mean, found.difference.low, found.difference.high) == pytest.approx(
        (GAP, GAP + PAIRS.low, GAP + PAIRS.high)
    )
    assert all(each.difference is None for each in attention.hits)
    assert {each.part: each.loss.mean for each in attention.parts} == pytest.approx(
        {"ar_hits": 2.5, "frequent": 1.5, "unseen": 5.5}
    )


def test_the_figure_has_a_line_and_a_point_per_arm_and_a_switch_to_differences(tmp_path: Path) -> None:
    figure = figure_of(summarise_study(written(tmp_path)))
    places = places_of(figure)
    assert set(places) == {(arm.name, mode) for arm in ARMS for mode in (LINE, POINT)}
    base, line = (figure.drawing.data[places[name, LINE]] for name in ("attention", "mamba"))
    assert list(line.x) == ENDS
    assert list(line.y) == pytest.approx([2.5 + GAP + end / 64 for end in ENDS], rel=1e-5)
    errors = math.hypot(stats.norm.ppf(0.975) * 0.03, stats.t.ppf(0.975, 2) * stats.sem([2.3, 2.5, 2.7]))
    assert list(line.error_y.array) == pytest.approx([errors] * 4, rel=1e-5)
    for name, unseen in (("attention", 5.5), ("mamba", 5.5 + GAP)):
        assert list(figure.drawing.data[places[name, POINT]].y) == pytest.approx([unseen])
    (switch,) = figure.switches
    loss, difference = switch.options
    assert loss.traces["y"] == [list(trace.y) for trace in figure.drawing.data]
    apart = {key: difference.traces["y"][place] for key, place in places.items()}
    assert apart["attention", LINE] == apart["attention", POINT] == []
    assert (apart["mamba", LINE], apart["mamba", POINT]) == (pytest.approx([GAP] * 4), pytest.approx([GAP]))
    assert difference.traces["error_y.array"][places["mamba", LINE]] == pytest.approx([0.1] * 4)
    assert "more than 1,250 times" in figure.note
    assert "mamba has no windows of 2×: reads at most <64> tokens." in figure.note
    first = figure.table.rows[0]
    assert first[:4] == ("attention", "1", "10.0 %", f"{2.5 + 1 / 64:.4f}")
    assert figure.table.rows[-1][1] == "not seen before"
    interval = f"+{GAP + PAIRS.low:.4f} to +{GAP + PAIRS.high:.4f}"
    assert [row[-2:] for row in (first, figure.table.rows[-1])] == [("–", "–"), (f"+{GAP:.4f}", interval)]
    said = f"; less attention: +{GAP:.4f} ({interval})"
    assert line.text[0] == difference.traces["text"][places["mamba", LINE]][0] == said
    assert base.text[0] == ""


def test_a_single_pair_of_seeds_has_no_interval(tmp_path: Path) -> None:
    folder, store = written(tmp_path), Store(tmp_path)
    for seed in (1, 2):
        store.evals_path(StudyOf(ARMS).digest(ARMS[0], seed), "e1").unlink()
    figure = figure_of(summarise_study(folder))
    assert figure.table.rows[-1][-2:] == (f"+{GAP - 0.1:.4f}", "–")
    line = figure.drawing.data[places_of(figure)["mamba", LINE]]
    assert line.text[0] == f"; less attention: +{GAP - 0.1:.4f}"


def test_a_seed_without_a_loss_leaves_its_distance_out(tmp_path: Path) -> None:
    folder, store = written(tmp_path), Store(tmp_path)
    digest = StudyOf(ARMS).digest(ARMS[1], 1)
    with changed(store.evals_path(digest, "e1")) as document:
        next(row for row in document["sections"]["recall"]["rows"] if row["part"] == "distance")["nats_per_token"] = (
            None
        )
    attention, mamba = shown(summarise_study(folder), Recall).curves
    assert [hits.last for hits in attention.hits] == ENDS
    assert [hits.last for hits in mamba.hits] == ENDS[1:]


def test_the_page_has_it_only_where_it_was_asked_for(tmp_path: Path) -> None:
    page = render_page(summarise_study(written(tmp_path / "with")))
    assert '<h3 class="finding">Associative recall by distance</h3>' in page
    assert "reads at most &lt;64&gt; tokens" in page
    plain = summarise_study(StudyOf(ARMS).write(tmp_path / "without"))
    assert plain.section(Recall) is None
    assert "Associative recall" not in render_page(plain)


def test_where_nothing_is_a_hit_the_page_says_why(tmp_path: Path) -> None:
    summary = summarise_study(written(tmp_path / "frequent", hits=False))
    assert not any(figure.key == "recall" for figure in draw(summary))
    (warning,) = [each for each in summary.warnings if "recall hit" in each]
    assert "occurs more than 1,250 times in the training text" in warning
    assert not any("recall hit" in each for each in summarise_study(written(tmp_path / "hits")).warnings)


def test_paired_items_weigh_as_many_tokens_as_they_have(tmp_path: Path) -> None:
    """A stretch with three hits counts three times as much as one with one."""
    folder, study, store = written(tmp_path), StudyOf(ARMS), Store(tmp_path)
    weights, gaps = [3, 1, 2, 2], [0.5, 1.5, 1.0, 2.0]
    for arm in ARMS:
        for seed in range(3):
            digest = study.digest(arm, seed)
            samples = store.read_samples(digest, "e1")
            assert samples is not None
            means = [1.0 + 0.01 * seed + gap * (arm.name == "mamba") for gap in gaps]
            sums = [mean * weight for mean, weight in zip(means, weights, strict=True)]
            mean = sum(sums) / sum(weights)
            score = Score(value=mean, stderr=0.1, higher_is_better=False, chance=None, items=len(gaps))
            found = store.read_evals(digest, "e1")
            assert found is not None
            found.scores["recall"] = {"loss_ar_hits_1x": score}
            metrics = ({"loss_ar_hits_1x": {"sum": s, "weight": w}} for s, w in zip(sums, weights, strict=True))
            extra = [
                SampleRecord(task="recall", doc_id=i, doc_hash=f"token {i}", metrics=each)
                for i, each in enumerate(metrics)
            ]
            store.write_evals(digest, "e1", found, [*samples, *extra])
    (item,) = [each for each in summarise_study(folder).arms[1].items if each.task == "recall"]
    assert item.reason is None
    expected = sum(w * g for w, g in zip(weights, gaps, strict=True)) / sum(weights)
    assert item.difference == pytest.approx(expected)
    assert item.low is not None
    assert item.low < expected
