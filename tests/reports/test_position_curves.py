"""Loss by position in the report: means over seeds by hand, and arms that cannot read on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.judge.findings.study_summary import StudySummary
from reports.page.evaluations.positions import PositionCurve, Positions
from reports.page.figures.base import Figure
from reports.page.figures.drawing import Drawing
from reports.page.html.page import render_page
from reports.page.sections import draw, summarise_study
from store import Store, StudyFolder
from tests.reports.factory import Arm, StudyOf, changed, shown

CONTEXT = 64
ENDS = {1: [16, 32, 64], 4: [16, 32, 64, 128, 256]}
STRETCHES = 4
ARMS = [Arm("alibi", [2.4, 2.5, 2.6], steps=4), Arm("learned", [2.3, 2.5, 2.7], steps=4)]


def bucket(first: int, last: int, loss: float) -> dict[str, Any]:
    bits = None if last == 16 else loss / math.log(2) / 3
    return {
        "first": first,
        "last": last,
        "tokens": 100,
        "bytes": 300,
        "nats_per_token": loss,
        "stderr": 0.03,
        "bits_per_byte": bits,
        "bits_per_byte_stderr": 0.01,
    }


def window(multiple: int, loss: float, extension: str | None = None) -> list[dict[str, Any]]:
    ends = ENDS[multiple]
    pairs = zip([1, *(end + 1 for end in ends)], ends, strict=False)
    shared = {"extension": extension, "multiple": multiple, "length": multiple * CONTEXT}
    return [{**shared, **bucket(first, last, loss + 10 / last)} for first, last in pairs]


def written(root: Path, refused: tuple[str, ...] = ("learned",)) -> Path:
    """A study of which each run has read windows of 1 × and, unless refused, 4 × the context."""
    study = StudyOf(ARMS)
    folder = study.write(root)
    store = Store(root)
    for arm in ARMS:
        for seed, loss in enumerate(arm.losses):
            assert loss is not None
            longer = window(4, loss)
            if arm.name in refused:
                longer = [{"extension": None, "multiple": 4, "length": 256, "reason": "reads at most <64> tokens"}]
            with changed(store.evals_path(study.digest(arm, seed), "e1")) as document:
                about = {"context": CONTEXT, "stretches": STRETCHES}
                document["sections"]["positions"] = {"about": about, "rows": [*window(1, loss), *longer]}
    return folder


def figure_of(summary: StudySummary) -> Figure:
    return next(figure for figure in draw(summary) if figure.key == "positions")


def curves_of(folder: Path) -> tuple[PositionCurve, ...]:
    return shown(summarise_study(folder), Positions).curves


def test_curves_are_means_over_seeds(tmp_path: Path) -> None:
    alibi, learned = curves_of(written(tmp_path))
    assert (alibi.arm, alibi.context, alibi.multiple, alibi.reasons) == ("alibi", CONTEXT, 4, ())
    assert (learned.arm, learned.multiple) == ("learned", 1)
    assert learned.reasons == ((4, "reads at most <64> tokens"),)
    assert [b.last for b in alibi.buckets] == ENDS[4]
    assert [b.last for b in learned.buckets] == ENDS[1]
    found = alibi.buckets[-1]
    assert (found.first, found.loss.x, found.loss.seeds) == (129, 256, 3)
    assert found.loss.mean == pytest.approx(2.5 + 10 / 256)
    assert (found.loss.low, found.loss.high) == pytest.approx((2.4 + 10 / 256, 2.6 + 10 / 256))
    # Seeds share the text: its error does not shrink with their number, their own scatter does.
    assert found.stderr == pytest.approx(math.sqrt(0.03**2 + np.var([2.4, 2.5, 2.6], ddof=1) / 3))
    assert found.bits_per_byte == pytest.approx((2.5 + 10 / 256) / math.log(2) / 3)
    assert alibi.buckets[0].bits_per_byte is None


def test_the_figure_has_a_line_per_arm_and_says_who_cannot_read_on(tmp_path: Path) -> None:
    figure = figure_of(summarise_study(written(tmp_path)))
    lines = {trace.name: trace for trace in figure.drawing.data if trace.mode == "lines+markers"}
    assert list(lines) == ["alibi", "learned"]
    assert list(lines["alibi"].x) == ENDS[4]
    assert list(lines["learned"].x) == ENDS[1]
    assert [trace.fill for trace in figure.drawing.data].count("toself") == 2
    (mark,) = figure.drawing.layout.shapes
    assert (mark.x0, mark.x1) == (CONTEXT, CONTEXT)
    assert "learned has no windows of 4×: reads at most <64> tokens." in figure.note
    rows = [row[:3] for row in figure.table.rows]
    assert rows[-1] == ("learned", "33–64", f"{2.5 + 10 / 64:.4f}")
    assert len(rows) == len(ENDS[4]) + len(ENDS[1])


def test_the_axis_shows_the_places_where_models_differ(tmp_path: Path) -> None:
    figure = figure_of(summarise_study(written(tmp_path, refused=())))
    low, high = figure.drawing.layout.yaxis.range
    assert low < 2.3 + 10 / 256
    assert high > 2.7 + 10 / 16
    assert isinstance(figure.drawing, Drawing)
    assert list(figure.drawing.layout.xaxis.ticktext) == ["16", "32", "64", "128", "256"]


def test_a_seed_without_a_loss_leaves_its_bucket_out(tmp_path: Path) -> None:
    folder = written(tmp_path, refused=())
    store = Store(tmp_path)
    digest = StudyOf(ARMS).digest(ARMS[0], 1)
    with changed(store.evals_path(digest, "e1")) as document:
        document["sections"]["positions"]["rows"][-1]["nats_per_token"] = None
    alibi, learned = curves_of(folder)
    assert [b.last for b in alibi.buckets] == ENDS[4][:-1]
    assert [b.last for b in learned.buckets] == ENDS[4]


def test_the_page_has_it_only_where_it_was_asked_for(tmp_path: Path) -> None:
    page = render_page(summarise_study(written(tmp_path / "with")))
    assert '<h3 class="finding">Loss by position</h3>' in page
    assert "reads at most &lt;64&gt; tokens" in page
    plain = summarise_study(StudyOf(ARMS).write(tmp_path / "without"))
    assert plain.section(Positions) is None
    assert "Loss by position" not in render_page(plain)
    nobody = summarise_study(written(tmp_path / "nobody", refused=("alibi", "learned")))
    assert [curve.multiple for curve in shown(nobody, Positions).curves] == [1, 1]


def test_an_extension_is_a_line_of_its_own_with_its_arm(tmp_path: Path) -> None:
    folder = written(tmp_path)
    study, store = StudyOf(ARMS), Store(tmp_path)
    for seed in range(3):
        refused = {"extension": "longrope", "multiple": 4, "length": 256, "reason": "needs more"}
        with changed(store.evals_path(study.digest(ARMS[0], seed), "e1")) as document:
            document["sections"]["positions"]["rows"] += [*window(4, 1.0 + seed, "yarn"), refused]
    summary = summarise_study(folder)
    curve, unread = (each for each in shown(summary, Positions).curves if each.extension)
    assert (unread.name, unread.buckets) == ("alibi, longrope", ())
    assert (curve.name, curve.multiple) == ("alibi, yarn", 4)
    assert curve.buckets[-1].loss.mean == pytest.approx(2.0 + 10 / 256)
    found = next(each for each in draw(summary) if each.key == "positions")
    drawn = next(trace for trace in found.drawing.data if trace.name == "alibi, yarn")
    assert drawn.legendgroup == "alibi"
    assert "scaled (yarn)" in found.note
    assert "alibi is not evaluated with longrope: needs more." in found.note


def test_errors_are_in_the_unit_of_the_losses(tmp_path: Path) -> None:
    """Where arms have tokenizers of their own both are per byte: the factory has 0.75 bits per byte for each nat."""
    folder = written(tmp_path)
    per_token = curves_of(folder)[0].buckets[-1]
    with changed(StudyFolder(folder).document_path) as study:
        study["per"] = "byte"
    per_byte = curves_of(folder)[0].buckets[-1]
    factor = 0.75 * math.log(2)
    assert per_byte.loss.mean == pytest.approx(factor * per_token.loss.mean)
    assert per_token.stderr is not None
    assert per_byte.stderr == pytest.approx(factor * per_token.stderr)


def test_sentences_are_in_the_unit_of_the_losses(tmp_path: Path) -> None:
    folder = written(tmp_path, refused=())
    study, store = StudyOf(ARMS), Store(tmp_path)
    for arm, gap in zip(ARMS, (0.31, -0.00001), strict=True):
        for seed in range(3):
            with changed(store.evals_path(study.digest(arm, seed), "e1")) as document:
                score = {"value": gap, "stderr": 0.01, "higher_is_better": False, "chance": None, "items": STRETCHES}
                document["scores"]["positions"] = {"extrapolation_gap_4x": score}
    with changed(StudyFolder(folder).document_path) as of_study:
        of_study["per"] = "byte"
    summary = summarise_study(folder)
    cost = f"{0.31 * 0.75 * math.log(2):.4f} nats/byte higher (standard error {0.01 * 0.75 * math.log(2):.4f})"
    assert list(shown(summary, Positions).sentences(summary)) == [
        f"alibi: in windows of 4 × the training context, the loss on the same tokens is {cost}.",
        "learned: in windows of 4 × the training context, the loss on the same tokens is unchanged.",
    ]
    page = render_page(summary)
    assert '<h2 id="beyond-the-training-context">Beyond the training context <a' in page and cost in page
