"""Arms that each tune their own rate: what that costs, in intervals and verdicts, and what the report says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import reports
from ablate.study.tune_spec import FINE, TuneSpec, rates_around
from ablate.wings.tuning.trials import Tuned
from ablate.wings.tuning.tuning import TuningPass, propose, study_tuning
from reports.judge.findings.noise import StudyNoise, study_noise
from reports.judge.findings.verdicts import compare, decide
from reports.judge.noise.difference import NOTHING
from reports.judge.statistics.estimates import Floats
from reports.judge.statistics.ledger import FIRST_SHARE
from reports.page.wording import finding_words, training_words
from store.documents import StudyTrial, StudyTuning
from store.documents.tuning import RATE
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

STUDIES = 300
SPEC = TuneSpec()


@dataclass
class Curve:
    """Losses by rate: `floor`, the least, at `best`, with `curvature` nats per squared decade, steeper above."""

    best: float
    curvature: float
    skew: float = 1.5
    spikes: bool = False
    """Half of the runs at more than twice the best rate end higher, by 0.2 nats in the mean."""
    rougher: float = 1.0
    """Above 1.4 times the best rate the noise is so many times as large."""
    cliff: tuple[float, float] | None = None
    """Above so many times the best rate, losses are so many nats higher."""
    floor: float = 2.3
    together: float = 0.0
    """Share of a tuning run's variance that is its seed's at all of the arm's rates: runs that begin with the same
    weights and read the same batches end alike."""

    def __call__(self, rate: float) -> float:
        decades = self.skew * math.log10(rate / self.best)
        fallen = self.cliff[1] if self.cliff and rate > self.cliff[0] * self.best else 0.0
        return self.floor + fallen + 2 * self.curvature * (math.exp(decades) - 1 - decades) / self.skew**2

    def runs(self, draw: np.random.Generator, rate: float, sd: float, seeds: int) -> Floats:
        """Losses of so many seeds."""
        losses = self(rate) + draw.normal(0, sd * (self.rougher if rate > 1.4 * self.best else 1.0), seeds)
        if not self.spikes or rate < 2 * self.best:
            return losses
        return losses + draw.integers(0, 2, seeds) * draw.exponential(0.2, seeds)


def tried(draw: np.random.Generator, curve: Curve, sd: float, space: dict, shared: Floats) -> Tuned:  # type: ignore[type-arg]
    """One pass, with what each seed does to all runs, whatever the arm."""
    batches = propose(SPEC, space, lambda _: True)
    batch = next(batches)
    while True:
        losses = [shared + curve.runs(draw, settings[RATE], sd, len(shared)) for settings in batch]
        try:
            batch = batches.send([each.tolist() for each in losses])
        except StopIteration as end:
            found: Tuned = end.value
            return found


SHARED = (0.013, -0.021, 0.008)
"""Nats by which tuning seeds move all runs."""


def tune(
    draw: np.random.Generator,
    name: str,
    curve: Curve,
    sd: float,
    seeds: int = 2,
    shared: Sequence[float] = SHARED,
) -> StudyTuning:
    """Both passes; shorter runs are noisier."""
    by_seed = shared[:seeds] + draw.normal(0, sd * math.sqrt(curve.together), seeds)
    alone = sd * math.sqrt(1 - curve.together)
    coarse = tried(draw, curve, 2 * alone, SPEC.space_around(1e-2), by_seed[:1])
    fine = tried(draw, curve, alone, rates_around(coarse.chosen[RATE], FINE), by_seed)
    passes = (TuningPass(share, each, (("r",),) * len(each.trials)) for share, each in ((0.25, coarse), (1.0, fine)))
    return study_tuning(name, list(passes))


def judged(
    draw: np.random.Generator, curves: Sequence[Curve], sd: float, seeds: int, tuning_seeds: int = 2
) -> tuple[bool, bool, float]:
    """Whether the first and the last of arms that tuned for themselves are called different, and would be by a paired
    t-test without room for it, corrected for as many arms; and the room."""
    names = [f"arm {place}" for place in range(len(curves))]
    moved = draw.normal(0, 0.02, tuning_seeds).tolist()
    tunings = [tune(draw, name, curve, sd, tuning_seeds, moved) for name, curve in zip(names, curves, strict=True)]
    shared = draw.normal(0, 0.02, seeds)
    losses = [shared + curve.runs(draw, tuning.rate, sd, seeds) for curve, tuning in zip(curves, tunings, strict=True)]
    study = StudyOf([Arm(name, [2.4] * seeds) for name in names], tuning=tunings).document()
    rows = [{"arm": n, "seed": s, "loss": float(losses[i][s])} for i, n in enumerate(names) for s in range(seeds)]
    *_, found = compare(study, finished(rows)).values()
    plain = float(stats.ttest_rel(losses[-1], losses[0]).pvalue) * (len(curves) - 1) / FIRST_SHARE
    return decide(found) in ("better", "worse"), plain < 0.05, found.tuning_room


Pair = Callable[[float], tuple[Curve, Curve]]
"""Two arms with the same least loss, from the best rate of the first."""


def alike(curvature: float, factor: float = 1.4, spikes: bool = False) -> Pair:
    """The best rates differ by `factor`."""
    return lambda best: (Curve(best, curvature, spikes=spikes), Curve(factor * best, curvature, spikes=spikes))


def wrongly_different(pair: Pair, seeds: int, sd: float = 0.01, tuning_seeds: int = 2) -> tuple[int, int, float]:
    """Wrong differences among `STUDIES` studies of such a pair; the same without room for tuning; and the median
    room."""
    draw, rooms = np.random.default_rng(7), []
    wrong = plain = 0
    for _ in range(STUDIES):
        said, would, room = judged(draw, pair(1e-2 * 2 ** draw.uniform(-1.5, 1.5)), sd, seeds, tuning_seeds)
        wrong, plain = wrong + said, plain + would
        rooms.append(room)
    found = wrong, plain, float(np.median(rooms))
    print(f"{wrong} of {STUDIES} (without room {plain}); median room {found[2]:.4f}")
    return found


def is_rare(wrong: int) -> bool:
    """Whether a binomial test at 1 % allows so many errors at a true rate of 5 %."""
    return float(stats.binomtest(wrong, STUDIES, 0.05, alternative="greater").pvalue) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curvature", "seeds", "tuning_seeds"),
    [(0.0, 3, 2), (0.0, 12, 1), (0.05, 12, 2), (0.2, 12, 2), (0.2, 12, 1), (0.2, 3, 3), (1.0, 3, 2), (1.0, 5, 1)],
)
def test_arms_with_the_same_least_loss_are_seldom_called_different(
    curvature: float, seeds: int, tuning_seeds: int
) -> None:
    """Flat curves, where the best rate is noise, to curves such as models of this size have."""
    assert is_rare(wrongly_different(alike(curvature), seeds, tuning_seeds=tuning_seeds)[0])


UNLIKE: dict[str, Pair] = {
    "steep against flat": lambda best: (Curve(best, 2.0), Curve(2 * best, 0.1)),
    "smooth against a soft cliff": lambda best: (Curve(best, 0.4), Curve(best, 0.4, cliff=(1.4, 0.14))),
    "smooth against a hard cliff": lambda best: (Curve(best, 0.4), Curve(best, 0.4, cliff=(1.3, 0.34))),
    "flat against a hard cliff": lambda best: (Curve(best, 0.05), Curve(best / 2, 1.0, cliff=(1.1, 0.34))),
    "a cliff each": lambda best: (Curve(best, 1.0, cliff=(1.1, 0.3)), Curve(1.4 * best, 0.4, cliff=(1.6, 0.1))),
    "rough above the best": lambda best: (Curve(best, 0.7), Curve(1.4 * best, 0.7, rougher=5.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 12])
@pytest.mark.parametrize("name", UNLIKE)
def test_curves_of_unlike_shapes_make_no_winners(name: str, seeds: int) -> None:
    """The curves have the same least loss. Beside a cliff the best rate is easily missed."""
    assert is_rare(wrongly_different(UNLIKE[name], seeds)[0])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e2, 1e5, 1e6])
def test_arms_whose_best_rate_may_lie_beyond_those_tried_are_seldom_called_different(factor: float) -> None:
    """The same least loss once more; the further off it is, the more of them end at an edge."""
    assert is_rare(wrongly_different(alike(0.2, factor), seeds=3)[0])


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.05, 0.2, 1.0])
def test_runs_that_end_high_at_high_rates_make_no_winners(curvature: float) -> None:
    assert is_rare(wrongly_different(alike(curvature, spikes=True), seeds=5)[0])


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.2, 1.0])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_tuning_runs_that_end_alike_at_neighbouring_rates_are_not_counted_twice(curvature: float, seeds: int) -> None:
    """Counted as independent, they would make the noise of a study look smaller and better known than it is."""

    def arms(best: float) -> tuple[Curve, Curve]:
        return Curve(best, curvature, together=0.9), Curve(1.4 * best, curvature, together=0.9)

    assert is_rare(wrongly_different(arms, seeds)[0])


@pytest.mark.slow
def test_erratic_rates_of_one_arm_hide_no_difference_of_others() -> None:
    """Five arms, of which one is 0.05 nats above the rest, and one ends anywhere at high rates."""
    draw, studies, found, rooms = np.random.default_rng(8), STUDIES // 3, 0, []
    for _ in range(studies):
        curves = [Curve(1e-2 * 2 ** draw.uniform(-1, 1), 0.5, spikes=arm == 2) for arm in range(5)]
        curves[-1].floor += 0.05
        said, _, room = judged(draw, curves, 0.01, seeds=5)
        found, rooms = found + said, [*rooms, room]
    print(f"found {found} of {studies}, median room {np.median(rooms):.4f}")
    assert found > 0.95 * studies


@pytest.mark.slow
@pytest.mark.parametrize("rougher", [1.0, 5.0])
@pytest.mark.parametrize("difference", [0.0, 0.03, 0.05])
def test_room_for_tuning_costs_a_fifth_of_what_paired_tests_find_at_most(difference: float, rougher: float) -> None:
    """Four arms, of which one differs; noise as in docs/noise.md, or five times as large above the best rate."""
    draw, studies, found, plain, rooms = np.random.default_rng(5), 100, 0, 0, []
    for _ in range(studies):
        curves = [Curve(1.5e-2 * 2 ** draw.uniform(-0.7, 0.7), 0.7, rougher=rougher) for _ in range(4)]
        curves[-1].floor += difference
        said, would, room = judged(draw, curves, 0.013, 5)
        found, plain, rooms = found + said, plain + would, [*rooms, room]
    print(f"{difference}: found {found} of {studies}, paired tests {plain}, median room {np.median(rooms):.4f}")
    if difference:
        assert found >= 0.8 * plain
    else:
        assert stats.binomtest(found, studies, 0.05, alternative="greater").pvalue > 0.01


def tuned_study(root: Path, curvature: float) -> Path:
    draw, curve = np.random.default_rng(3), Curve(1.1e-2, curvature)
    arms = [Arm("pre", [2.40, 2.41, 2.39]), Arm("post", [2.43, 2.45, 2.42])]
    return StudyOf(arms, tuning=[tune(draw, arm.name, curve, 0.004) for arm in arms]).write(root)


def test_the_noise_of_tuning_is_in_the_interval_and_the_headline_says_how_rates_were_set(tmp_path: Path) -> None:
    folder = tuned_study(tmp_path, 0.1)
    summary = reports.summarise(folder)
    found = summary.arms[1].comparison
    assert found is not None and found.gap is not None and found.difference is not None and found.tuning_room > 0
    low, high = stats.t.interval(1 - 0.05 * FIRST_SHARE, found.gap.freedom, found.gap.value, found.gap.error)
    assert found.difference.low < low < high < found.difference.high
    untuned = 2 * stats.t.sf(found.gap.value / found.gap.error, found.gap.freedom) / FIRST_SHARE
    assert found.p_holm is not None and found.p_holm > untuned
    fewest, most = sorted(len(each.trials) for each in summary.study.tuning)
    tried = f"{fewest} to {most} rates × 2 seeds at full length, after 5 rates × 1 seed at a quarter of the length"
    assert f"each arm at its own best learning rate ({tried})" in finding_words.headline(summary)


@pytest.mark.parametrize("curvature", [0.1, 1.0])
def test_beside_a_bracketed_best_rate_the_noise_of_tuning_costs_little(tmp_path: Path, curvature: float) -> None:
    """Less than half of what the noise of seeds costs."""
    found = reports.summarise(tuned_study(tmp_path, curvature)).arms[1].comparison
    assert found is not None and found.gap is not None
    assert found.tuning_room < 0.5 * found.gap.error * stats.t.isf(0.025, found.gap.freedom)


def test_no_arm_can_have_lost_more_than_its_loss(tmp_path: Path) -> None:
    """Where a task is solved or not, tuning runs lie nats apart, and arms that solve it have next to none to lose."""
    draw, curve = np.random.default_rng(3), Curve(1.1e-2, 0.1)
    arms = [Arm("pre", [0.011, 0.013, 0.012]), Arm("post", [0.003, 0.002, 0.0025])]
    tunings = [tune(draw, arm.name, curve, 1.0) for arm in arms]
    summary = reports.summarise(StudyOf(arms, tuning=tunings).write(tmp_path))
    found = summary.arms[1].comparison
    assert found is not None and found.gap is not None
    difference, gap = found.difference, found.gap
    low, high = replace(gap, own=NOTHING, other=NOTHING).interval(0.05 * FIRST_SHARE)
    assert difference is not None and difference.low is not None and difference.high is not None
    assert 0.8 * 0.0025 < low - difference.low <= 0.0025
    assert 0.8 * 0.012 < difference.high - high <= 0.012


def test_one_tuning_seed_has_the_noise_of_the_runs_that_are_judged(tmp_path: Path) -> None:
    draw, curve = np.random.default_rng(3), Curve(1e-2, 0.5)
    arms = [Arm("pre", [2.40, 2.41, 2.39]), Arm("post", [2.43, 2.45, 2.42])]
    one, two = ([tune(draw, arm.name, curve, 0.004, seeds) for arm in arms] for seeds in (1, 2))
    rooms = []
    for name, tunings in (("one", one), ("two", two)):
        summary = reports.summarise(StudyOf(arms, tuning=tunings).write(tmp_path / name))
        found = summary.arms[1].comparison
        assert found is not None and found.gap is not None
        rooms.append(found.tuning_room)
        assert "trained with" not in finding_words.sentence(summary, summary.arms[1])
    assert 0 < rooms[1] < rooms[0] < 0.1


def judging(draw: np.random.Generator, *names: str) -> pl.DataFrame:
    """Four seeds of each arm, with a noise of 0.004."""
    losses = 2.3 + draw.normal(0, 0.02, 4) + draw.normal(0, 0.004, (len(names), 4))
    return finished([{"arm": n, "seed": s, "loss": float(losses[i, s])} for i, n in enumerate(names) for s in range(4)])


def test_a_tuning_run_that_stalled_is_named_and_adds_nothing_to_the_noise() -> None:
    draw, runs = np.random.default_rng(3), judging(np.random.default_rng(4), "pre", "post")
    arms = [tune(draw, name, Curve(1e-2, 0.1), 0.004) for name in ("pre", "post")]
    stuck = StudyTrial(settings={RATE: 0.1}, losses=(5.9, 2.4), runs=("a", "b"), stalled=1)
    with_one = arms[1].model_copy(update={"trials": (*arms[1].trials, stuck)})
    without, found = study_noise(arms, runs), study_noise([arms[0], with_one], runs)
    assert found.model == without.model and found.run == without.run
    np.testing.assert_array_equal(found.penalty("post").values, without.penalty("post").values)
    assert "At train.lr 0.1, 1 of 2 seeds stalled." in training_words.taken("post", with_one, None)


def test_an_arm_judged_at_a_rate_that_was_not_tried_has_the_noise_of_its_best() -> None:
    """Losses from elsewhere may name a rounded rate."""
    draw, names = np.random.default_rng(3), ("pre", "post", "double")
    runs, arms = (
        judging(np.random.default_rng(4), *names),
        [tune(draw, name, Curve(1e-2, 0.5), 0.004) for name in names],
    )
    elsewhere = arms[2].model_copy(update={"chosen": {RATE: arms[2].rate * (1 + 1e-9)}})
    before, after = study_noise(arms, runs).run, study_noise([*arms[:2], elsewhere], runs).run
    assert before is not None and after is not None
    assert before.freedom == after.freedom == 3 * (4 - 1) + 3 * (2 - 1)


def test_tuning_runs_far_apart_widen_no_other_arm() -> None:
    """An arm of `studies/value_streams.yaml` did that at the highest rate of its curve; here it is the one taken."""
    draw, names = np.random.default_rng(3), ("pre", "post", "double")
    runs = judging(np.random.default_rng(4), *names)
    arms = [tune(draw, name, Curve(1e-2, 0.5), 0.004) for name in names]
    place = next(p for p, trial in enumerate(arms[2].trials) if trial.settings == arms[2].chosen)
    first = arms[2].trials[place].losses[0]
    assert first is not None
    apart = arms[2].trials[place].model_copy(update={"losses": (first - 0.2, first + 0.2)})
    trials = tuple(apart if p == place else trial for p, trial in enumerate(arms[2].trials))
    before, after = (
        study_noise(arms, runs),
        study_noise([*arms[:2], arms[2].model_copy(update={"trials": trials})], runs),
    )
    assert before.run is not None and after.run is not None
    assert after.run.sd < 1.5 * before.run.sd
    loud = {row: after.model.louder(row) for row in (*after.model.rows, *after.model.beside)}
    assert loud.pop(("double", place)) > 5 and max(loud.values()) < 2

    def most(noise: StudyNoise, arm: str) -> float:
        return float(noise.penalty(arm).values[-10])

    assert most(after, "pre") < 1.5 * most(before, "pre")
    assert most(after, "double") > 3 * most(before, "double")
