"""Readings of the probes, summarised and drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import CurvePoint
from reports.page.figures.base import Figure
from reports.page.sections import galleries, summarise_study
from reports.page.sections._probe_figures import SHOWN, ProbeCurves
from reports.page.sections.stability import Stability
from store import Store
from store.documents import ProbeRecord
from tests.reports.factory import HOSTILE, PROBE_LAYERS, SEEN, Arm, StudyOf, probe_value, shown

OF_THE_MODEL = ("log_z", "chunk_length")
ALL = (*SEEN, *OF_THE_MODEL)


def study(*probes: str, arms: list[Arm] | None = None) -> StudyOf:
    given = arms or [Arm("pre", [2.4, 2.5], steps=10), Arm("post", [2.3, 2.6], steps=10)]
    return StudyOf(given, measured=False, probes=probes or ALL)


def curves_of(asked: StudyOf, root: Path, probe: str) -> ProbeCurves:
    return next(c for c in shown(summarise_study(asked.write(root)), Stability).probes if c.shown.probe == probe)


def drawn(summary: StudySummary) -> tuple[Figure, ...]:
    return galleries(summary).get("Stability", ())


def seeds(*values: float) -> tuple[float, float, float]:
    return pytest.approx((sum(values) / len(values), min(values), max(values)))


def numbers(point: CurvePoint) -> tuple[float, float, float]:
    return point.mean, point.low, point.high


def test_by_depth_are_the_first_and_the_last_step_over_seeds(tmp_path: Path) -> None:
    found = curves_of(study(), tmp_path, "activation_variance")
    assert [curve.arm for curve in found.start] == [curve.arm for curve in found.end] == ["pre", "post"]
    for curves, step in ((found.start, 1), (found.end, 10)):
        for curve in curves:
            assert [point.x for point in curve.points] == list(range(PROBE_LAYERS))
            for layer, point in enumerate(curve.points):
                assert numbers(point) == seeds(*(probe_value(layer, step, seed) for seed in (0, 1)))


@pytest.mark.parametrize(
    ("probe", "layer", "factor"),
    [("gradient_norm", 0, 100), ("activation_variance", 2, 1), ("attention_entropy", 0, 1), ("log_z", 0, 100)],
)
def test_by_step_is_the_model_s_own_or_its_extreme_layer_s(
    probe: str, layer: int, factor: float, tmp_path: Path
) -> None:
    found = curves_of(study(), tmp_path, probe)
    for curve in found.by_step:
        assert [point.x for point in curve.points] == [1, 5, 10]
        for point in curve.points:
            values = (factor * probe_value(layer, int(point.x), seed) for seed in (0, 1))
            assert numbers(point) == seeds(*values)


def test_a_run_that_diverged_counts_and_one_under_way_does_not(tmp_path: Path) -> None:
    asked = study("log_z", arms=[Arm("pre", [2.4, 9.9, 2.5], steps=10, diverged=[1])])
    folder = asked.write(tmp_path)
    Store(tmp_path).result_path(asked.digest(asked.arms[0], 2)).unlink()
    (curve,) = shown(summarise_study(folder), Stability).probes[0].by_step
    assert numbers(curve.points[-1]) == seeds(*(100 * probe_value(0, 10, seed) for seed in (0, 1)))
    assert {point.seeds for point in curve.points} == {2}


def test_a_value_that_was_not_finite_is_left_out(tmp_path: Path) -> None:
    asked = study("log_z", arms=[Arm("pre", [2.4], steps=10)])
    folder = asked.write(tmp_path)
    stray = ProbeRecord(step=7, probe="log_z", layer=None, name="mean", value=math.inf)
    Store(tmp_path).append_probes(asked.digest(asked.arms[0], 0), [stray])
    (curve,) = shown(summarise_study(folder), Stability).probes[0].by_step
    assert [point.x for point in curve.points] == [1, 5, 10]


def deep(placement: str, slopes: list[float]) -> list[tuple[Arm, list[float]]]:
    """Arms of 4, 8 and 16 layers; the base model has 4."""
    edits = {} if placement == "pre" else {"block.norm_placement": placement}
    made = []
    for layers in (4, 8, 16):
        more = {} if layers == 4 else {"n_layers": layers}
        name = placement if layers == 4 else f"{placement}+n_layers={layers}"
        made.append((Arm(name, [2.4] * len(slopes), steps=2, edits=edits | more), [layers**s for s in slopes]))
    return made


def with_last_gradients(arms: list[tuple[Arm, list[float]]], root: Path) -> Path:
    asked = StudyOf([arm for arm, _ in arms], measured=False)
    folder, store = asked.write(root), Store(root)
    for arm, norms in arms:
        layers = arm.edits.get("n_layers", 4)
        for seed, norm in enumerate(norms):
            values = [norm if i == layers - 1 else 7.0 for i in range(layers)]
            records = (
                ProbeRecord(step=1, probe="gradient_norm", layer=layer, name="ffn.output", value=value)
                for layer, value in enumerate(values)
            )
            store.append_probes(asked.digest(arm, seed), records)
    return folder


def test_slopes_are_those_of_the_last_layer_over_depth_and_seeds(tmp_path: Path) -> None:
    arms = [*deep("pre", [-0.4, -0.5, -0.6]), *deep("post", [0.0, 0.0, 0.0])]
    summary = summarise_study(with_last_gradients(arms, tmp_path))
    pre, post = shown(summary, Stability).scaling
    assert (pre.curve.arm, post.curve.arm) == ("pre", "post")
    assert [point.x for point in pre.curve.points] == [4, 8, 16]
    assert pre.slope.values == pytest.approx((-0.4, -0.5, -0.6))
    assert pre.slope.half_width == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert post.slope.mean == pytest.approx(0.0, abs=1e-9)
    figure = drawn(summary)[0]
    assert figure.key == "gradient-scaling"
    assert "pre −0.50 ± 0.25; post 0.00 ± 0.00" in figure.note


def test_two_depths_make_no_slope(tmp_path: Path) -> None:
    assert shown(summarise_study(with_last_gradients(deep("pre", [-0.5])[:2], tmp_path)), Stability).scaling == ()


def test_every_probe_has_words_and_figures_with_their_numbers(tmp_path: Path) -> None:
    assert {shown.probe for shown in SHOWN} == set(ALL)
    figures = drawn(summarise_study(study().write(tmp_path)))
    by_step, by_depth = (
        {f"{name.replace('_', '-')}-{kind}" for name in names} for names, kind in ((ALL, "by-step"), (SEEN, "by-depth"))
    )
    assert {figure.key for figure in figures} == by_step | by_depth
    for figure in figures:
        assert figure.table.rows
        assert all(len(row) == len(figure.table.columns) for row in figure.table.rows)
        assert figure.drawing.data


def test_magnitudes_are_drawn_on_logarithms_where_all_are_positive(tmp_path: Path) -> None:
    summary = summarise_study(study("max_attention_logit").write(tmp_path))
    section = shown(summary, Stability)
    (probe,) = section.probes
    negative = replace(probe.start[0], points=(CurvePoint(0.0, 1.0, -1.0, 3.0, 2), *probe.start[0].points[1:]))
    changed = replace(section, probes=(replace(probe, start=(negative, *probe.start[1:])),))
    below = replace(summary, sections={"stability": changed})
    axes = {}
    for name, each in (("positive", summary), ("negative", below)):
        axes[name] = [figure.drawing.layout.yaxis.type for figure in drawn(each)]
    assert axes == {"positive": ["log", "log"], "negative": [None, "log"]}


def test_the_section_is_there_only_with_probes_and_hostile_names_stay_text(tmp_path: Path) -> None:
    text = reports.render(study(arms=[Arm(HOSTILE, [2.4], steps=4)]).write(tmp_path / "with")).read_text()
    assert '<h2 id="stability">Stability <a' in text
    assert HOSTILE not in text
    without = replace(study(), probes=())
    assert '<h2 id="stability">Stability <a' not in reports.render(without.write(tmp_path / "without")).read_text()


def test_spikes_of_the_loss_are_in_the_table_of_runs(tmp_path: Path) -> None:
    runs = summarise_study(study().write(tmp_path)).runs
    assert runs["loss_spikes"].to_list() == [10, 11, 10, 11]
