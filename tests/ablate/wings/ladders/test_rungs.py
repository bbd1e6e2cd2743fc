"""Whether differences change with size and length, from stores to words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.wings.ladders import ladder_words
from ablate.wings.ladders.rungs import Change, changes
from ablate.wings.ladders.sections.ladder import Ladder
from ablate.wings.ladders.sections.rungs import Rungs
from ablate.wings.science.recording import result_of
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import REPEATED
from reports.judge.reading.collect import collect
from reports.judge.reading.collected import Collected
from reports.page.figures.drawing import looks
from reports.page.html.page import render_page
from reports.page.sections import summarise_study
from reports.page.wording import answers, finding_words
from tests.regression import holm
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_tuned import Curve, tune

BASE = (3.00, 3.02, 2.99, 3.01)
WOBBLE = np.array([0.001, -0.002, 0.002, -0.001])
SMALL, HALF = (3.4, 3.43, 3.39, 3.41), (3.2, 3.19, 3.21, 3.22)
AXES = {"small": "size", "half": "length"}


def above(losses: Sequence[float], gap: float, times: float = 1.0) -> tuple[float, ...]:
    """Losses of an arm that is so far from the baseline, with some scatter."""
    return tuple(float(each) for each in np.array(losses) + gap + times * WOBBLE[: len(losses)])


def study(gaps: Mapping[str, tuple[float, float, float]]) -> StudyOf:
    """Arms with their gap at the smaller size, at half the length, and in full. Their scatter differs."""
    rungs = {"small": SMALL, "half": HALF, "full": BASE}
    arms = {
        rung: [Arm("pre", losses), *(Arm(name, above(losses, gap[place], place + 1)) for name, gap in gaps.items())]
        for place, (rung, losses) in enumerate(rungs.items())
    }
    # of the same steps, so that compute differs by the FLOPs of a token
    small = [replace(arm, flops_per_token=1e6) for arm in arms["small"]]
    half = [replace(arm, steps=10) for arm in arms["half"]]
    return StudyOf(arms["full"], smaller={"small": ("size", small), "half": ("length", half)}, measured=False)


def summary_of(tmp_path: Path, gaps: Mapping[str, tuple[float, float, float]]) -> StudySummary:
    return summarise_study(study(gaps).write(tmp_path))


def rungs_of(summary: StudySummary) -> Rungs:
    section = summary.section(Rungs)
    assert section is not None
    return section


def found(summary: StudySummary, arm: str, rung: str) -> Change:
    return next(each for each in rungs_of(summary).changes if (each.arm, each.rung) == (arm, rung))


def test_repeated_seeds_have_no_verdict_on_changes(tmp_path: Path) -> None:
    gaps = {"post": (0.01, 0.05, 0.10), "double": (0.01, 0.05, 0.10)}
    told = changes(collect(study(gaps).write(tmp_path)), {"post"})
    assert {(each.arm, each.word) for each in told} == {("post", "no verdict"), ("double", "grows")}
    assert [(each.p, each.reason) for each in told if each.arm == "post"] == [(None, REPEATED)] * 2


def test_changes_are_paired_by_seed_and_corrected_over_arms_and_rungs(tmp_path: Path) -> None:
    """The p-values are those of scipy's paired t-test with Holm's correction."""
    gaps = {"post": (0.040, 0.052, 0.050), "double": (-0.05, -0.0485, -0.046)}
    summary = summary_of(tmp_path, gaps)
    assert [(each.arm, each.rung, each.axis) for each in rungs_of(summary).changes] == [
        (arm, rung, axis) for arm in gaps for rung, axis in AXES.items()
    ]
    plain, differences = [], []
    for small, half, full in gaps.values():
        after = np.array(above(BASE, full, 3)) - BASE
        for losses, gap, times in ((SMALL, small, 1), (HALF, half, 2)):
            before = np.array(above(losses, gap, times)) - losses
            plain.append(stats.ttest_rel(after, before).pvalue)
            differences.append(float((after - before).mean()))
    assert [each.p for each in rungs_of(summary).changes] == pytest.approx(holm(plain))
    assert [each.change and each.change.mean for each in rungs_of(summary).changes] == pytest.approx(differences)
    for each in rungs_of(summary).changes:
        assert each.p is not None
        assert each.change is not None
        assert each.change.excludes(0) == (each.p < 0.05)


WORDS = {
    "a": (-0.10, -0.30, "grows", "a: the difference grows with size: −0.10"),
    "b": (-0.30, -0.10, "shrinks", "b: the difference shrinks with size: −0.30"),
    "c": (0.10, 0.30, "grows", "c: the difference grows with size: +0.10"),
    "d": (-0.10, 0.10, "flips", "d: the difference changes sign with size: −0.10"),
    "e": (-0.030, 0.0298, "flips", "e: the difference changes sign with size"),
    "f": (0.100, 0.1005, "cannot tell", "f: cannot tell whether the difference changes with size"),
}
"""The difference at the smaller size and in full, and what is said."""


def test_the_word_for_a_change(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {arm: (small, full, full) for arm, (small, full, *_) in WORDS.items()})
    for arm, (_, _, word, said) in WORDS.items():
        assert found(summary, arm, "small").word == word, arm
        assert ladder_words.sentence(found(summary, arm, "small")).startswith(said)


def test_which_way_a_change_goes_may_be_open(tmp_path: Path) -> None:
    """From just below zero to just above it: it changes, and neither end is known to be on its side."""
    arms = [Arm("pre", BASE), Arm("post", tuple(np.add(BASE, (0.030, -0.014, 0.031, -0.012))))]
    small = [Arm("pre", SMALL), Arm("post", tuple(np.add(SMALL, (0.010, -0.033, 0.012, -0.031))))]
    change = found(summarise_study(StudyOf(arms, smaller={"small": ("size", small)}).write(tmp_path)), "post", "small")
    assert change.word == "changes"
    assert ladder_words.sentence(change).startswith("post: the difference changes with size: −0.01")


def test_the_headline_says_what_changes_and_what_is_open(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {"post": (0.3, 0.101, 0.1), "double": (-0.1, -0.101, -0.1)})
    size = "With size (small to full), the difference of post shrinks from +0.300 to +0.100; cannot tell for double."
    for said in (answers.headline(summary), finding_words.headline(summary)):
        assert said.startswith(f"{size} ") and "length" not in said
    assert "double beats pre by 0.1" in answers.headline(summary)
    assert not any("With size" in each for each in answers.qualifiers(summary)), "once is enough"


def test_a_trend_of_one_arm_has_its_numbers_even_if_it_is_open(tmp_path: Path) -> None:
    said = answers.headline(summary_of(tmp_path, {"post": (0.1, 0.101, 0.1)}))
    assert "Whether the difference of post changes with size (small to full) is open (+0.10" in said


def test_many_changes_of_which_nothing_is_known_are_one_line(tmp_path: Path) -> None:
    gaps = {f"arm{number}": (0.1, 0.1004, 0.1) for number in range(7)} | {"post": (0.3, 0.101, 0.1)}
    summary = summary_of(tmp_path, gaps)
    said = list(ladder_words.sentences(rungs_of(summary).changes))
    known = [each for each in rungs_of(summary).changes if each.word != "cannot tell"]
    assert len(said) == len(known) + 1
    unknown = f"For {16 - len(known)} of 16 comparisons with full"
    assert said[-1] == f"{unknown}, cannot tell whether the difference changes."
    assert "cannot tell for 7 arms." in finding_words.headline(summary)


def test_nothing_is_said_before_all_runs_have_ended(tmp_path: Path) -> None:
    planned = study({"post": (0.3, 0.2, 0.1)})
    axis, arms = planned.smaller["small"]
    missing = [arms[0], replace(arms[1], losses=(*arms[1].losses[:3], None))]
    summary = summarise_study(replace(planned, smaller={**planned.smaller, "small": (axis, missing)}).write(tmp_path))
    change = found(summary, "post", "small")
    assert (change.word, change.p) == ("no verdict", None)
    said = ladder_words.sentence(change)
    assert "1 of 16 runs of this comparison have not ended" in said
    assert "post at small: 1 of 4 runs have no result (seed 3)." in summary.warnings
    assert found(summary, "post", "half").word == "shrinks"
    assert "With size" not in finding_words.headline(summary)


def test_a_rung_without_a_result_is_named_and_seen_to_be_empty(tmp_path: Path) -> None:
    planned = study({"post": (0.3, 0.2, 0.1)})
    axis, arms = planned.smaller["small"]
    none = [replace(arm, losses=(None,) * 4) for arm in arms]
    summary = summarise_study(replace(planned, smaller={**planned.smaller, "small": (axis, none)}).write(tmp_path))
    reason = "8 of 16 runs of this comparison have not ended"
    assert ladder_words.sentence(found(summary, "post", "small")) == (
        f"post: no verdict on size between small and full: {reason}."
    )
    section = summary.section(Rungs)
    assert section is not None
    (figure,) = section.figures(summary, looks(["pre", "post"]))
    assert {each.text for each in figure.drawing.layout.annotations} == {"small: no result", "half", "full"}
    low, high = figure.drawing.layout.xaxis.range
    flops = [next(arm.flops for arm in rung.arms if arm.name == "pre") for rung in summary.study.ladder]
    assert 10**low < min(flops) < max(flops) < 10**high


def test_no_result_is_said_to_be_of_the_rung_that_is_compared(tmp_path: Path) -> None:
    planned = study({"post": (0.3, 0.2, 0.1)})
    none = [replace(arm, losses=(None,) * 4) for arm in planned.arms]
    summary = summarise_study(replace(planned, arms=none).write(tmp_path))
    assert answers.headline(summary) == "No result yet: no run at full (the rung that is compared) has ended."


def test_a_seed_that_failed_forbids_a_word_and_is_named(tmp_path: Path) -> None:
    planned = study({"post": (0.3, 0.2, 0.1)})
    axis, arms = planned.smaller["small"]
    failing = [arms[0], replace(arms[1], diverged=(2,))]
    summary = summarise_study(replace(planned, smaller={**planned.smaller, "small": (axis, failing)}).write(tmp_path))
    change = found(summary, "post", "small")
    assert (change.word, change.p) == ("cannot tell", None)
    assert "3 seeds, seed 2 of post diverged at small" in ladder_words.sentence(change)


def test_more_seeds_of_the_last_rung_are_not_waited_for(tmp_path: Path) -> None:
    planned = study({"post": (0.3, 0.2, 0.1)})
    more = [replace(arm, losses=(*arm.losses, None)) for arm in planned.arms]
    change = found(summarise_study(replace(planned, arms=more).write(tmp_path)), "post", "small")
    assert change.word == "shrinks"
    assert change.change is not None
    assert len(change.change.values) == 4


def test_the_page_draws_every_rung_and_names_the_rates(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {"post": (0.3, 0.2, 0.1)})
    page = render_page(summary)
    assert "Change with size and length" in page
    assert "Learning rates were not tuned at each rung, so a change may come from them." in page
    assert "Difference from pre at every size and length" in page
    assert summary.section(Ladder) is None, "two sizes have no law"


def tuned(planned: StudyOf, draw: np.random.Generator, curve: Curve, sd: float) -> StudyOf:
    """With every arm tuned for itself at every rung."""
    full, *smaller = ([tune(draw, arm.name, curve, sd) for arm in planned.arms] for _ in ("full", *AXES))
    return replace(planned, tuning=full, smaller_tuning=dict(zip(AXES, smaller, strict=True)))


def test_what_tuning_may_have_cost_widens_both_ends(tmp_path: Path) -> None:
    """At either rung either arm may have lost something."""
    planned = study({"post": (0.3, 0.2, 0.1)})
    plain = summarise_study(planned.write(tmp_path / "plain"))
    wide = summarise_study(tuned(planned, np.random.default_rng(3), Curve(1.1e-2, 0.1), 0.004).write(tmp_path / "wide"))
    for rung in AXES:
        known, free = (found(summary, "post", rung) for summary in (wide, plain))
        assert known.change is not None
        assert free.change is not None
        assert known.change.low < free.change.low - 1e-4
        assert known.change.high > free.change.high + 1e-4
        assert known.p is not None
        assert free.p is not None
        assert known.p > free.p
    assert "Intervals allow for what the noise of tuning may have cost" in rungs_of(wide).introduction(wide)
    assert "not tuned at each rung" not in rungs_of(wide).introduction(wide)


# What is promised, simulated


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """Three arms with other gaps than none, whose losses are drawn anew."""
    planned = study(dict.fromkeys("abc", (0.1, 0.1, 0.1)))
    return collect(planned.write(tmp_path_factory.mktemp("shown")))


def few(wrong: int, studies: int) -> None:
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.001, wrong


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 4])
def test_changes_that_are_not_there(shown: Collected, seeds: int) -> None:
    """5 % of studies at most say that the difference of any arm changes with size or length."""
    draw, frame = np.random.default_rng(seeds), shown.rungs.filter(pl.col("seed") < seeds)

    def says_so() -> bool:
        shared = draw.normal(0, 0.02, seeds)
        losses = 3 + shared[frame["seed"].to_numpy()] + draw.normal(0, 0.01, frame.height)
        drawn = frame.with_columns(loss=pl.Series(losses))
        return any(each.word != "cannot tell" for each in changes(replace(shown, rungs=drawn)))

    few(sum(says_so() for _ in range(1000)), 1000)


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.0, 0.05, 0.2, 1.0])
def test_the_noise_of_tuning_is_no_change(shown: Collected, curvature: float) -> None:
    """Identical arms that each tune their own rate at each rung, and are trained at it."""
    draw, sd, curve = np.random.default_rng(7), 0.01, Curve(1e-2, curvature)
    frame = shown.rungs
    names = [arm.name for arm in shown.study.arms]

    def says_so() -> bool:
        moved = draw.normal(0, 0.02, (len(AXES) + 1, 2)).tolist()
        tunings = {
            rung: {name: tune(draw, name, curve, sd, shared=shared) for name in names}
            for rung, shared in zip((*AXES, "full"), moved, strict=True)
        }
        ladder = [rung.model_copy(update={"tuning": tuple(tunings[rung.name].values())}) for rung in shown.study.ladder]
        document = shown.study.model_copy(update={"ladder": tuple(ladder), "tuning": ladder[-1].tuning})
        shared = draw.normal(0, 0.02, 4)
        losses = [
            curve(tunings[rung][arm].rate) + shared[seed] + draw.normal(0, sd)
            for rung, arm, seed in frame.select("rung", "arm", "seed").iter_rows()
        ]
        drawn = frame.with_columns(loss=pl.Series(losses))
        data = replace(shown, study=document, rungs=drawn)
        return any(each.word != "cannot tell" for each in changes(data))

    few(sum(says_so() for _ in range(200)), 200)


def test_differences_are_read_off_the_baselines_curve(tmp_path: Path) -> None:
    """The arm at full size is as good as the baseline's power law, through its two sizes, is at some compute: with two
    sizes, any exponent within reason has that compute in the interval. The verdict and the interval agree."""
    gaps = {"same": (0.0, 0.0, 0.0), "better": (0.0, 0.0, -0.05), "worse": (0.0, 0.0, 0.05)}
    folder = study(gaps).write(tmp_path)
    summary = summarise_study(folder)
    worth = rungs_of(summary).worth
    assert worth is not None
    assert worth.axis == "size"
    rungs = summary.study.ladder
    few, many = (arm.flops for rung in (rungs[0], rungs[-1]) for arm in rung.arms if arm.name == "pre")
    fall = (np.mean(SMALL) - np.mean(BASE)) / np.log(many / few)
    straight = np.exp(0.05 / fall)  # a loss that is linear in the logarithm of compute
    found = summary.effective_compute
    assert found["better"].low < straight < found["better"].high
    for arm in summary.arms[1:]:
        excludes_one = not found[arm.name].low < 1 < found[arm.name].high
        assert excludes_one == (arm.verdict in ("better", "worse")), arm.name
    kept = next(arm for arm in result_of(folder).arms if arm.name == "better").effective_compute
    assert kept is not None
    assert [kept.mean, kept.low] == pytest.approx([found["better"].value, found["better"].low], rel=1e-3)
    page = render_page(summary)
    assert f"×{found['better'].value:.2f}" in page
    assert "0.01 nats are worth" in page
