"""Arms whose best rate lies beyond those that were tried may be better than they look, nobody knows by how much."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.wings.designs.factorial_effects import EffectTest
from reports.judge.findings.comparison import Comparison
from reports.judge.findings.noise import study_noise
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.summary import open_arms
from reports.judge.findings.verdicts import decide
from reports.judge.noise.difference import UNBOUNDED
from reports.page.wording import finding_words, method_words, training_words
from reports.page.wording.summary_json import documents
from reports.page.wording.table import LATEX
from store import Store
from store.documents import StudyTrial, StudyTuning
from store.documents.tuning import RATE
from tests.reports.browsing import unpacked
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_tuned import Curve, judging, tune

BASE = [2.40, 2.41, 2.39, 2.405]
BY = [0.098, 0.103, 0.101, 0.099]
"""An arm's differences: to be told from zero without any doubt."""


def study(root: Path, sign: int, *at_edges: str, **given: Any) -> StudySummary:
    """`post` differs from `pre` by that; the best rates of some arms lie beyond those tried."""
    draw = np.random.default_rng(3)
    losses = [base + sign * by for base, by in zip(BASE, BY, strict=True)]
    tunings = [_edged(tune(draw, name, Curve(1e-2, 0.5), 0.004), name in at_edges) for name in ("pre", "post")]
    arms = [Arm("pre", BASE), Arm("post", losses)]
    return reports.summarise(StudyOf(arms, tuning=tunings, **given).write(root))


def _edged(tuning: StudyTuning, at_edge: bool) -> StudyTuning:
    return tuning.model_copy(update={"edges": (RATE,) if at_edge else ()})


def of_post(summary: StudySummary) -> Comparison:
    found = summary.arms[1].comparison
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sign", "at_edges", "verdict"),
    [
        (1, (), "worse"),
        (1, ("post",), "inconclusive"),
        (1, ("pre",), "worse"),
        (1, ("pre", "post"), "inconclusive"),
        (-1, (), "better"),
        (-1, ("post",), "better"),
        (-1, ("pre",), "inconclusive"),
        (-1, ("pre", "post"), "inconclusive"),
    ],
)
def test_what_may_be_better_at_another_rate_is_never_called_worse(
    tmp_path: Path, sign: int, at_edges: tuple[str, ...], verdict: str
) -> None:
    found = of_post(study(tmp_path / "edges", sign, *at_edges))
    assert found.difference is not None
    assert decide(found) == verdict
    assert found.difference.excludes(0) == (verdict != "inconclusive")
    inside = of_post(study(tmp_path / "inside", sign)).difference
    assert inside is not None
    expected = (-math.inf if "post" in at_edges else inside.low, math.inf if "pre" in at_edges else inside.high)
    assert (found.difference.low, found.difference.high) == pytest.approx(expected, abs=2e-4)


def untrained(tuning: StudyTuning) -> StudyTuning:
    """The same, were every seed to stall at every rate, equally far from any best."""

    def stalled(trials: Iterable[StudyTrial]) -> tuple[StudyTrial, ...]:
        each = {"losses": (5.9, 5.901), "stalled": 2}
        return tuple(trial.model_copy(update=each) for trial in trials)

    coarse = tuple(each.model_copy(update={"trials": stalled(each.trials)}) for each in tuning.coarse)
    given = {"curve": (), "edges": (RATE,), "reason": "no seed trained", "chosen": tuning.trials[0].settings}
    return tuning.model_copy(update={"trials": stalled(tuning.trials), "coarse": coarse, **given})


def test_an_arm_that_trains_at_no_rate_may_be_anything_and_tells_nothing_of_noise(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    arms = [Arm("pre", BASE), Arm("double", BASE), Arm("post", [base + by for base, by in zip(BASE, BY, strict=True)])]
    tunings = [tune(draw, name, Curve(1e-2, 0.5), 0.004) for name in ("pre", "double", "post")]
    runs = judging(np.random.default_rng(4), "pre", "double")
    alone, known = study_noise(tunings[:2], runs), study_noise([*tunings[:2], untrained(tunings[2])], runs)
    assert known.model == alone.model and known.run == alone.run
    for name in ("pre", "double"):
        assert known.choices[name].rate == alone.choices[name].rate
        np.testing.assert_array_equal(known.penalty(name).values, alone.penalty(name).values)
    assert known.penalty("post") is UNBOUNDED and known.choices["post"].rate is None
    path = StudyOf(arms, tuning=[*tunings[:2], untrained(tunings[2])]).write(tmp_path)
    summary = reports.summarise(path)
    assert summary.arms[2].verdict == "inconclusive"
    assert finding_words.sentence(summary, summary.arms[2]).endswith(
        "nats, since post trained with none of the settings tried."
    )
    assert training_words.rates(summary.study).endswith("; post trained with none of those tried")
    (warning,) = training_words.warnings("post", summary.study.tuning[2])
    assert warning == "post: every seed diverged or stalled with all settings tried, so its best loss is unknown."
    said = training_words.taken("post", summary.study.tuning[2], None)
    assert said.endswith(": no seed trained. The best tried at a quarter of the length: none, no seed trained.")
    assert warning in reports.render(path).read_text("utf-8")


def test_nothing_is_called_a_tie_beside_such_a_rate(tmp_path: Path) -> None:
    close = [2.4001, 2.4102, 2.3899, 2.4052]
    for at_edge, verdict in ((False, "no difference"), (True, "inconclusive")):
        draw = np.random.default_rng(3)
        tunings = [_edged(tune(draw, name, Curve(1e-2, 5.0), 0.001), at_edge) for name in ("pre", "post")]
        arms = [Arm("pre", BASE), Arm("post", close)]
        found = reports.summarise(StudyOf(arms, tuning=tunings, margin=0.05).write(tmp_path / verdict))
        assert found.arms[1].verdict == verdict


def test_with_one_tuning_seed_an_edge_counts_as_well(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    tuning = _edged(tune(draw, "post", Curve(1e-2, 0.5), 0.004), True)
    one = tuning.model_copy(
        update={"trials": tuple(t.model_copy(update={"losses": t.losses[:1]}) for t in tuning.trials)}
    )
    arms = [Arm("pre", BASE), Arm("post", [base + by for base, by in zip(BASE, BY, strict=True)])]
    both = [_edged(one, False).model_copy(update={"arm": "pre"}), one]
    summary = reports.summarise(StudyOf(arms, tuning=both).write(tmp_path))
    assert of_post(summary).difference is not None and decide(of_post(summary)) == "inconclusive"


def test_what_is_said_printed_and_drawn_of_an_open_interval(tmp_path: Path) -> None:
    summary = study(tmp_path, 1, "post")
    said = finding_words.sentence(summary, summary.arms[1])
    assert "+0.100 (−∞ to +0.1" in said
    assert "inconclusive (4 seeds, p > 0.99): excludes only differences above +0.1" in said
    assert said.endswith("nats, since a best learning rate lies beyond those tried.")
    printed = json.loads(json.dumps(documents(summary), allow_nan=False))["arms"][1]
    assert printed["difference_interval"][0] is None and 0.1 < printed["difference_interval"][1] < 0.13
    assert printed["detectable"] is None
    both = study(tmp_path / "both", 1, "pre", "post")
    said_of_both = finding_words.sentence(both, both.arms[1])
    assert "+0.100 (−∞ to +∞) nats" in said_of_both and "excludes nothing, since" in said_of_both
    assert "(−∞ to +0.1)".translate(LATEX) == r"($-$$\infty$ to +0.1)"
    page = reports.render(Store(tmp_path).study("norm_placement", "cpu").path).read_text("utf-8")
    written = re.sub(r'<script type="text/plain".*?</script>', "", page) + unpacked(page, "data")
    assert "(−∞ to " in page and "Infinity" not in written and "NaN" not in written, "packed letters spell anything"


def test_no_seeds_are_added_where_only_rates_would_tell(tmp_path: Path) -> None:
    looks = [{"seeds": 4, "alpha": 0.02}, {"seeds": 8, "alpha": 0.03}]
    for sign, at_edges, expected in ((1, ("post",), ()), (1, (), ()), (-1, ("pre",), ()), (0, (), ("post",))):
        summary = study(tmp_path / f"{sign}{at_edges}", sign, *at_edges, looks=looks)
        assert open_arms(summary) == expected


def test_no_seeds_are_added_where_they_would_hardly_tell(tmp_path: Path) -> None:
    """`no` scatters about the baseline, `perhaps` lies to one side."""
    looks = [{"seeds": 5, "alpha": 0.02}, {"seeds": 8, "alpha": 0.03}]
    base = [2.400, 2.412, 2.391, 2.405, 2.397]
    no, perhaps = [2.406, 2.398, 2.401, 2.394, 2.407], [2.412, 2.409, 2.414, 2.421, 2.399]
    arms = [Arm("pre", base), Arm("no", no), Arm("perhaps", perhaps)]
    summary = reports.summarise(StudyOf(arms, looks=looks).write(tmp_path))
    assert [decide(arm.comparison) for arm in summary.arms[1:] if arm.comparison] == ["inconclusive"] * 2
    assert open_arms(summary) == ("perhaps",)
    assert "at 5, 8 seeds; these looks share the 5 % error rate, and arms that" in method_words.method(summary)


def test_an_effect_may_be_anything_on_the_side_of_such_runs() -> None:
    inside, below, above, both = (
        EffectTest(0.1, 0.01, 8, *ends) for ends in ((), (True,), (False, True), (True, True))
    )
    low, high = stats.t.interval(0.95, 8, 0.1, 0.01)
    assert inside.interval(0.05) == pytest.approx((low, high))
    assert below.interval(0.05) == pytest.approx((-math.inf, high)) and below.p == 1.0
    assert above.interval(0.05) == pytest.approx((low, math.inf))
    assert both.interval(0.05) == (-math.inf, math.inf) and both.p == 1.0
    assert above.p == inside.p == pytest.approx(2 * stats.t.sf(10, 8))
    assert below.p_tie(1.0) == above.p_tie(1.0) == 1.0 > inside.p_tie(1.0)
