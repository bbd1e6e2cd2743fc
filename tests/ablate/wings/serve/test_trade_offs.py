"""Costs against qualities: which points are beaten, where their names stand, and which studies share a plane."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.wings.serve.trade_offs import Studied, render_trade_offs
from reports.judge.statistics.estimates import Estimate, surely_dominated
from reports.page.figures.drawing import looks
from reports.page.html.page import render_page
from reports.page.sections import draw, summarise_study
from reports.page.sections._against import LossDifferences, Ratios
from reports.page.sections._plane import NO_BAR, PLACES, Plane, label_places, readable
from reports.page.wording import finding_words
from reports.page.wording.cost_words import change_of, clear_costs, costs
from reports.page.wording.training_words import conditions
from tests.reports.browsing import data_of
from tests.reports.factory import Arm, StudyOf, changed, typical

END = st.floats(-3, 3)
SPAN = st.tuples(END, st.floats(0, 2)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def of(mean: float, low: float, high: float) -> Estimate:
    return Estimate(mean, low, high, None, ())


@given(st.lists(st.tuples(SPAN, SPAN), max_size=6), st.randoms(use_true_random=False))
def test_what_is_surely_beaten_is_on_no_front_that_the_intervals_allow(points, random) -> None:
    """Wherever the truth lies within the intervals, another point is at least as good in both."""
    beaten = surely_dominated(points)
    for _ in range(20):
        truth = [(random.uniform(*x), random.uniform(*y)) for x, y in points]
        for number, (x, y) in enumerate(truth):
            others = [point for place, point in enumerate(truth) if place != number]
            assert not beaten[number] or any(a <= x and b <= y for a, b in others)


def test_points_are_beaten_where_intervals_do_not_overlap() -> None:
    base, worse, touching, unknown = ((1, 1), (0, 0)), ((1, 1), (0.1, 0.4)), ((1, 1), (0, 0.3)), None
    assert surely_dominated([base, worse, touching, unknown]) == [False, True, False, False]
    assert surely_dominated([base, base]) == [False, False]


def test_names_leave_the_edges_and_each_other() -> None:
    right, left = label_places([(0.99, 0.5), (0.01, 0.5)], ["a name of twenty", "a name of twenty"])
    assert right.endswith("left")
    assert left.endswith("right")
    assert len(set(label_places([(0.5, 0.5)] * 4, ["four", "arms", "in", "one"]))) == len(PLACES)


def test_a_name_stands_beside_its_own_point_and_where_it_runs_out_least() -> None:
    upper, lower = label_places([(0.5, 0.52), (0.5, 0.5)], ["upper", "lower"])
    assert upper.startswith("top")
    assert lower.startswith("bottom")
    (place,) = label_places([(0.6, 0.5)], ["a name that is too long for the right as for the left " * 2])
    assert place.endswith("left")  # 40 % of the drawing are on the right, and 60 % on the left


def test_a_ratio_reads_as_a_factor_or_as_a_percentage() -> None:
    far = Ratios("cache", (of(1, 1, 1), of(0.125, 0.125, 0.125), None)).ticks()
    assert dict(zip(far["tickvals"], far["ticktext"], strict=True)) == {
        0.125: "1/8×",
        0.25: "1/4×",
        0.5: "1/2×",
        1: "1×",
    }
    near = Ratios("time", (of(1, 1, 1), of(1.04, 1.01, 1.07))).ticks()
    assert {"same", "+2 %", "+4 %"} <= set(near["ticktext"])
    assert near["tickvals"][near["ticktext"].index("+4 %")] == pytest.approx(1.04)


def test_a_wide_interval_does_not_squeeze_the_points() -> None:
    near = of(0, 0, 0), of(0.01, -0.01, 0.03), of(-0.02, -0.05, 0.01)
    for wild in (of(0.02, -9, 9), of(0.02, -math.inf, math.inf)):
        axis = LossDifferences("loss", (*near, wild))
        assert axis.range == pytest.approx((-0.05 - 0.15 * 0.08, 0.03 + 0.15 * 0.08))
        assert axis.lacks_bars
        assert axis.option("y").traces["error_y.array"] == [[0.0], [0.02], [0.03], [0.0]]
        cost = Ratios("KV cache", (of(1, 1, 1), of(0.5, 0.5, 0.5), of(0.6, 0.6, 0.6), of(2, 2, 2)))
        styles = list(looks(["base", "a", "b", "wild"]).values())
        assert NO_BAR in Plane(styles, [cost], [axis]).explained
    assert not LossDifferences("loss", near).lacks_bars
    assert LossDifferences("loss", (of(0, 0, 0), of(0.01, -9, 9))).range == pytest.approx((-11.7, 11.7))


def test_costs_of_processes_that_differ_as_processes_do_are_no_trade_off(tmp_path: Path) -> None:
    """Peaks of 402 and 436 MiB are those of an interpreter; of tensors alone they differ by 8 %."""
    arms = [Arm("base", [2.4, 2.41, 2.42], memory_mib=402), Arm("arm", [2.3, 2.31, 2.32], memory_mib=436)]
    keys = {}
    for source, memory in (("VmHWM", 436), ("cuda allocated", 436), ("VmHWM", 836)):
        own = [arms[0], replace(arms[1], memory_mib=memory)]
        measured = {(arm.name, seed): {"peak_memory_source": source} for arm in own for seed in range(3)}
        folder = StudyOf(own, measured=False, results=measured).write(tmp_path / f"{source} {memory}")
        keys[source, memory] = [figure.key for figure in draw(summarise_study(folder))]
    assert {at: "trade-off" in found for at, found in keys.items()} == {
        ("VmHWM", 436): False,
        ("cuda allocated", 436): True,
        ("VmHWM", 836): True,
    }


def test_an_axis_as_wide_as_its_intervals_has_few_ticks() -> None:
    near, far = (Ratios("decoding time", (of(1, 1, 1), of(1.2, 1 / high, high))).ticks() for high in (1.25, 3.0))
    assert near["ticktext"][0] == "−20 %" and len(near["ticktext"]) <= 7
    assert "2×" in far["ticktext"] and len(far["ticktext"]) <= 7


def test_decoding_is_a_cost_and_noise_is_none(tmp_path: Path) -> None:
    """Decoding as measured: speed / 10 at every context, so by the same ratio as training."""
    summary = summarise_study(typical().write(tmp_path))
    double = next(arm.comparison for arm in summary.arms if arm.name == "double")
    assert double is not None
    found = double.costs
    assert found.decoding is not None
    assert found.decoding.mean == pytest.approx(3880 / 4000)
    assert costs(found) == "training 3 % slower, decoding 3 % slower, 15 % more peak memory, 2× smaller KV cache"
    noisy = replace(found, training=of(0.97, 0.9, 1.05), memory=of(1.1, 0.8, 1.4), kv_ratio=1.0)
    assert costs(noisy) == "decoding 3 % slower, no measurable change in training speed or peak memory"
    assert clear_costs(noisy) == "decoding 3 % slower"
    assert clear_costs(replace(noisy, decoding=None)) == "no measurable change in cost"
    unknown = replace(noisy, decoding=None, training=None, unmeasured="why")
    for each in (unknown, replace(unknown, unmeasured=None)):
        assert clear_costs(each) == "no measurable change in peak memory"
        assert costs(each) == "no measurable change in peak memory, speeds not measured"
    assert clear_costs(replace(noisy, decoding=None, memory=None)) == "no measurable change in training speed"


def test_a_cache_that_stops_growing_is_compared_at_the_longest_context(tmp_path: Path) -> None:
    """A window of 32 tokens: as large as at 64 tokens at every context, where the baseline's grows fourfold."""
    folder = typical(4).write(tmp_path)
    with changed(folder / "study.json") as document:
        for point in document["arms"][2]["cache_bytes"]:
            point["bytes"] = 32 * 2048
    double = summarise_study(folder).arms[2].comparison
    assert double is not None
    assert (double.costs.kv_ratio, double.costs.kv_context) == (0.125, 256)
    assert costs(double.costs).endswith("8× smaller KV cache at 256 tokens")


def test_a_change_is_a_factor_or_a_percentage() -> None:
    assert change_of("KV cache", of(0.25, 0.25, 0.25)) == "4× smaller KV cache"
    assert change_of("training time per token", of(1.04, 1.01, 1.07)) == "training 4 % slower"
    assert change_of("training time per token", of(1.04, 0.9, 1.2)) == "no measurable change in training speed"


def test_studies_of_another_scale_or_text_have_a_plane_of_their_own(tmp_path: Path) -> None:
    summary = summarise_study(typical(4).write(tmp_path))
    elsewhere = replace(summary, study=summary.study.model_copy(update={"scale": "gpu"}))
    moved = tuple(arm.model_copy(update={"data": "data1"}) for arm in summary.study.arms)
    retold = replace(summary, study=summary.study.model_copy(update={"arms": moved}))
    smoke = replace(summary, study=summary.study.model_copy(update={"scale": "smoke"}))
    page = render_trade_offs([Studied(each, "report.html") for each in (summary, summary, elsewhere, retold, smoke)])
    figures = data_of(page)["figures"]
    assert [len(figure["links"]) for figure in figures.values()] == [4, 2, 2]
    for text in ("4 arms of 2 studies at cpu", "2 arms of 1 study at gpu", "Scale cpu, text data1"):
        assert text in page
    shown = figures["trade-offs-0"]["layout"]["xaxis"]["title"]["text"]
    assert shown.startswith("KV cache")  # one arm has half of it; speeds differ by 3 %


def test_a_headline_of_many_arms_names_the_best_and_counts_the_others(tmp_path: Path) -> None:
    arms = [Arm(f"arm {i}", [2.4 + i / 1e3, 2.5, 2.45], steps=4) for i in range(40)]
    summary = summarise_study(StudyOf(arms, measured=False).write(tmp_path))
    said = finding_words.headline(summary).replace(f" ({conditions(summary.study)})", "")
    assert said.count("arm ") <= 2
    assert "38 others are inconclusive" in said
    assert len(said) < 200


def test_names_that_would_cover_others_are_left_out() -> None:
    """At one place there is room for a name at each of four corners; far apart, for all."""
    names = [f"arm {i}" for i in range(7)]
    assert readable([(0.5, 0.5)] * 7, names) == [*names[:4], "", "", ""]
    assert readable([(0.2, 0.1 + 0.13 * i) for i in range(7)], names) == names


def test_of_many_arms_the_best_have_a_name_beside_them_and_the_baseline(tmp_path: Path) -> None:
    arms = [
        Arm(f"arm {i}", [2.4 + i / 1e3, 2.5 + i / 2e3, 2.45], steps=4, kv_bytes_per_token=2048 + 64 * i)
        for i in range(40)
    ]
    summary = summarise_study(StudyOf(arms, measured=False).write(tmp_path))
    figure = data_of(render_page(summary))["figures"]["trade-off"]
    named = [trace["name"] for trace in figure["data"] if trace["text"] != [""]]
    assert named[0] == "arm 0" and len(named) > 2
    assert set(named) <= {f"arm {i}" for i in range(12)}  # those that cover no other
    assert all(trace["hovertext"][0].startswith(f"<b>{trace['name']}</b>") for trace in figure["data"])


def test_only_an_arm_that_is_judged_beats_another(tmp_path: Path) -> None:
    """Markers are open, and said to be clearly dominated, where a verdict could say so."""
    losses: dict[str, list[float | None]] = {
        "judged": [2.31, 2.32, 2.30],
        "a seed failed": [2.31, 2.32, 2.30, 9.0],
        "still running": [2.31, 2.32, 2.30, None],
        "the same losses": [2.4, 2.412, 2.391],
    }
    base = [2.4, 2.412, 2.391, 2.40]
    beaten = {}
    for name, own in losses.items():
        failed = [3] if 9.0 in own else []
        study = StudyOf([Arm("base", base[: len(own)], steps=4), Arm("arm", own, speed=5000, diverged=failed, steps=4)])
        page = render_page(summarise_study(study.write(tmp_path / name)))
        first = data_of(page)["figures"]["trade-off"]["data"][0]["marker"]["symbol"]
        assert first.endswith("-open") == ("Open markers: clearly dominated" in page)
        beaten[name] = first.endswith("-open")
    assert beaten == {name: name == "judged" for name in losses}
    folder = tmp_path / "judged/studies/norm_placement-cpu"
    with changed(folder / "study.json") as document:
        document["scale"] = "smoke"
    assert "Open markers" not in render_page(summarise_study(folder))


def test_studies_without_a_result_are_not_counted(tmp_path: Path) -> None:
    summary = summarise_study(typical(4).write(tmp_path / "some"))
    none = StudyOf([Arm("base", [2.4]), Arm("arm", [None])], name="none_yet", measured=False)
    empty = summarise_study(none.write(tmp_path / "none"))
    page = render_trade_offs([Studied(each, "report.html") for each in (summary, empty)])
    assert "2 arms of 1 study at cpu" in page and "none_yet" not in page


def test_a_single_arm_is_no_comparison(tmp_path: Path) -> None:
    summary = summarise_study(StudyOf([Arm("only", [2.4, 2.41, 2.39])], measured=False).write(tmp_path))
    said = "The study has a single arm, so nothing is compared: only reached 2.400 ± 0.025 nats per token."
    assert finding_words.headline(summary) == said


def test_log_ranges_hold_all_points() -> None:
    axis = Ratios("cache", (of(1, 1, 1), of(0.5, 0.5, 0.5), of(3, 2, 5)))
    low, high = axis.range
    assert low < math.log10(0.5)
    assert high > math.log10(5)
