"""Arms that each tune their own rate: what that costs, in intervals and verdicts, and what the report says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from reports.findings.tuning import choices
from scipy import stats

import reports
from ablate.planning.campaign import Tuning, TuningPass
from ablate.planning.study_document import study_tuning
from ablate.planning.tuning import Tuned, propose
from ablate.store.documents import StudyTrial, StudyTuning
from ablate.store.documents.study import RATE
from ablate.study.tune_spec import FINE, TuneSpec, rates_around
from reports.findings.verdicts import compare, decide
from reports.statistics import erratic
from reports.statistics.estimates import Floats, paired_p
from reports.statistics.ledger import FIRST_SHARE
from reports.wording import rate_words, words
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

STUDIES = 300
SPEC = TuneSpec()


class Curve:
    """Losses by rate: least at `best`, with `curvature` nats per squared decade, steeper above. With `spikes`, half of
    the runs at more than twice the best rate end higher, by 0.2 nats in the mean. Above 1.4 times the best rate the
    noise is `rougher` by that factor."""

    def __init__(
        self, best: float, curvature: float, skew: float = 1.5, spikes: bool = False, rougher: float = 1.0
    ) -> None:
        self.best, self.curvature, self.skew, self.spikes, self.rougher = best, curvature, skew, spikes, rougher
        self.floor = 2.3

    def __call__(self, rate: float) -> float:
        decades = self.skew * math.log10(rate / self.best)
        return self.floor + 2 * self.curvature * (math.exp(decades) - 1 - decades) / self.skew**2

    def runs(self, draw: np.random.Generator, rate: float, sd: float, seeds: int) -> Floats:
        """Losses of so many seeds."""
        losses = self(rate) + draw.normal(0, sd * (self.rougher if rate > 1.4 * self.best else 1.0), seeds)
        if not self.spikes or rate < 2 * self.best:
            return losses
        return losses + draw.integers(0, 2, seeds) * draw.exponential(0.2, seeds)


def tried(draw: np.random.Generator, curve: Curve, sd: float, space: dict, seeds: int) -> Tuned:  # type: ignore[type-arg]
    """One pass, with what each seed does to all of its runs."""
    batches, shared = propose(SPEC, space, lambda _: True), draw.normal(0, 0.02, seeds)
    batch = next(batches)
    while True:
        losses = [shared + curve.runs(draw, settings[RATE], sd, seeds) for settings in batch]
        try:
            batch = batches.send([each.tolist() for each in losses])
        except StopIteration as end:
            found: Tuned = end.value
            return found


def tune(draw: np.random.Generator, name: str, curve: Curve, sd: float, seeds: int = 2) -> StudyTuning:
    """Both passes; shorter runs are noisier."""
    coarse = tried(draw, curve, 2 * sd, SPEC.space_around(1e-2), 1)
    fine = tried(draw, curve, sd, rates_around(coarse.chosen[RATE], FINE), seeds)
    passes = (TuningPass(share, each, (("r",),) * len(each.trials)) for share, each in ((0.25, coarse), (1.0, fine)))
    return study_tuning(Tuning(name, tuple(passes)))


def judged(
    draw: np.random.Generator, curves: Sequence[Curve], sd: float, seeds: int, tuning_seeds: int = 2
) -> tuple[bool, bool, float]:
    """Whether the first and the last of arms that tuned for themselves are called different, and would be without room
    for it; and the room."""
    names = [f"arm {place}" for place in range(len(curves))]
    tunings = [tune(draw, name, curve, sd, tuning_seeds) for name, curve in zip(names, curves, strict=True)]
    shared = draw.normal(0, 0.02, seeds)
    losses = [shared + curve.runs(draw, tuning.rate, sd, seeds) for curve, tuning in zip(curves, tunings, strict=True)]
    study = StudyOf([Arm(name, [2.4] * seeds) for name in names], tuning=tunings).document()
    rows = [{"arm": n, "seed": s, "loss": float(losses[i][s])} for i, n in enumerate(names) for s in range(seeds)]
    *_, found = compare(study, finished(rows)).values()
    plain = float(paired_p(losses[-1] - losses[0])) / 0.8
    return decide(found) in ("better", "worse"), plain < 0.05, found.tuning_room


def wrongly_different(
    curvature: float, factor: float, seeds: int, sd: float = 0.01, spikes: bool = False
) -> tuple[int, int, float]:
    """Of so many studies of two arms with the same least loss, at rates that differ by `factor`."""
    draw, rooms = np.random.default_rng(7), []
    wrong = plain = 0
    for _ in range(STUDIES):
        best = 1e-2 * 2 ** draw.uniform(-1.5, 1.5)
        curves = [Curve(rate, curvature, spikes=spikes) for rate in (best, factor * best)]
        said, would, room = judged(draw, curves, sd, seeds)
        wrong, plain = wrong + said, plain + would
        rooms.append(room)
    return wrong, plain, float(np.median(rooms))


@pytest.mark.slow
@pytest.mark.parametrize(("curvature", "seeds"), [(0.0, 3), (0.05, 12), (0.2, 12), (0.2, 3), (1.0, 3)])
def test_arms_with_the_same_least_loss_are_seldom_called_different(curvature: float, seeds: int) -> None:
    """Flat curves, where the best rate is noise, to curves such as models of this size have."""
    wrong, plain, room = wrongly_different(curvature, 1.4, seeds)
    print(f"curvature {curvature}, {seeds} seeds: {wrong} of {STUDIES} (without room {plain}); median room {room:.4f}")
    assert stats.binomtest(wrong, STUDIES, 0.05, alternative="greater").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e2, 1e5, 1e6])
def test_arms_whose_best_rate_may_lie_beyond_those_tried_are_seldom_called_different(factor: float) -> None:
    """The same least loss once more; the further off it is, the more of them end at an edge."""
    wrong, plain, _ = wrongly_different(0.2, factor, seeds=3)
    print(f"factor {factor}: {wrong} of {STUDIES} (without room {plain})")
    assert stats.binomtest(wrong, STUDIES, 0.05, alternative="greater").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.05, 0.2, 1.0])
def test_runs_that_end_high_at_high_rates_make_no_winners(curvature: float) -> None:
    wrong, plain, room = wrongly_different(curvature, 1.4, seeds=5, spikes=True)
    print(f"curvature {curvature}: {wrong} of {STUDIES} (without room {plain}); median room {room:.4f}")
    assert stats.binomtest(wrong, STUDIES, 0.05, alternative="greater").pvalue > 0.01


def found_beside_spikes(studies: int) -> tuple[int, float]:
    """Of so many studies of five arms that are found to differ by 0.05 nats, where the high rates of another arm are
    erratic; and the median room."""
    draw, found, rooms = np.random.default_rng(8), 0, []
    for _ in range(studies):
        curves = [Curve(1e-2 * 2 ** draw.uniform(-1, 1), 0.5, spikes=arm == 2) for arm in range(5)]
        curves[-1].floor += 0.05
        said, _, room = judged(draw, curves, 0.01, seeds=5)
        found, rooms = found + said, [*rooms, room]
    return found, float(np.median(rooms))


@pytest.mark.slow
def test_erratic_rates_of_one_arm_hide_no_difference_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found, room = found_beside_spikes(STUDIES // 3)
    monkeypatch.setattr(erratic, "LEVEL", -1.0)
    before, room_before = found_beside_spikes(STUDIES // 3)
    print(f"found {found} of {STUDIES // 3}, median room {room:.4f}; pooled {before}, {room_before:.4f}")
    assert found > max(before, 0.9 * STUDIES // 3)


def found_of_rough(difference: float, tuning_seeds: int, studies: int = 60) -> tuple[int, float]:
    """Of so many studies of four arms, of which one differs, that say so; and the median room. Noise as in
    docs/noise.md."""
    draw, found, rooms = np.random.default_rng(5), 0, []
    for _ in range(studies):
        curves = [Curve(1.5e-2 * 2 ** draw.uniform(-0.7, 0.7), 0.7, rougher=5.0) for _ in range(4)]
        curves[-1].floor += difference
        said, _, room = judged(draw, curves, 0.013, 5, tuning_seeds)
        found, rooms = found + said, [*rooms, room]
    return found, float(np.median(rooms))


@pytest.mark.slow
def test_a_third_tuning_seed_finds_what_two_do_not() -> None:
    of = {(by, seeds): found_of_rough(by, seeds) for by in (0.0, 0.07) for seeds in (2, 3)}
    print(of)
    assert of[0.07, 3][0] > 1.5 * of[0.07, 2][0]
    assert of[0.07, 3][1] < 0.5 * of[0.07, 2][1]
    assert max(of[0.0, seeds][0] for seeds in (2, 3)) <= 6  # 60 × 5 % and twice its standard deviation


def tuned_study(root: Path, curvature: float) -> Path:
    draw, curve = np.random.default_rng(3), Curve(1.1e-2, curvature)
    arms = [Arm("pre", [2.40, 2.41, 2.39]), Arm("post", [2.43, 2.45, 2.42])]
    return StudyOf(arms, tuning=[tune(draw, arm.name, curve, 0.004) for arm in arms]).write(root)


def test_the_noise_of_tuning_is_in_the_interval_and_the_headline_says_how_rates_were_set(tmp_path: Path) -> None:
    folder = tuned_study(tmp_path, 0.1)
    summary = reports.summarise(folder)
    found = summary.arms[1].comparison
    assert found is not None and found.difference is not None and found.tuning_room > 0.0005
    plain = StudyOf([Arm("pre", [2.40, 2.41, 2.39]), Arm("post", [2.43, 2.45, 2.42])]).write(tmp_path / "other")
    untuned = reports.summarise(plain).arms[1].comparison
    assert untuned is not None and untuned.difference is not None
    assert found.difference.low < untuned.difference.low < untuned.difference.high < found.difference.high
    assert found.p_holm is not None and untuned.p_holm is not None and found.p_holm > untuned.p_holm
    assert "each arm at its own best learning rate (3" in words.headline(summary)
    assert "× 2 seeds at full length, after 5" in words.headline(summary)


def test_where_the_rate_matters_the_noise_of_tuning_costs_little(tmp_path: Path) -> None:
    rooms = []
    for curvature in (0.1, 1.0):
        found = reports.summarise(tuned_study(tmp_path / str(curvature), curvature)).arms[1].comparison
        assert found is not None
        rooms.append(found.tuning_room)
    assert rooms[1] < 0.001 < rooms[0]


def test_no_arm_can_have_lost_more_than_its_loss(tmp_path: Path) -> None:
    """Where a task is solved or not, tuning runs lie nats apart, and arms that solve it have next to none to lose."""
    draw, curve = np.random.default_rng(3), Curve(1.1e-2, 0.1)
    arms = [Arm("pre", [0.011, 0.013, 0.012]), Arm("post", [0.003, 0.002, 0.0025])]
    tunings = [tune(draw, arm.name, curve, 1.0) for arm in arms]
    summary = reports.summarise(StudyOf(arms, tuning=tunings).write(tmp_path))
    difference = summary.arms[1].comparison and summary.arms[1].comparison.difference
    low, high = stats.t.interval(0.95 * FIRST_SHARE + 1 - FIRST_SHARE, 2, *_mean_and_error([-0.008, -0.011, -0.0095]))
    assert difference is not None and difference.low is not None and difference.high is not None
    assert 0.8 * 0.0025 < low - difference.low <= 0.0025
    assert 0.8 * 0.012 < difference.high - high <= 0.012


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(stats.sem(values))


def test_with_one_tuning_seed_the_noise_is_not_known(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    one = tune(draw, "post", Curve(1e-2, 0.1), 0.004)
    one = one.model_copy(update={"trials": tuple(t.model_copy(update={"losses": t.losses[:1]}) for t in one.trials)})
    arms = [Arm("pre", [2.40, 2.41, 2.39]), Arm("post", [2.43, 2.45, 2.42])]
    both = [one.model_copy(update={"arm": "pre"}), one]
    summary = reports.summarise(StudyOf(arms, tuning=both).write(tmp_path))
    found = summary.arms[1].comparison
    assert found is not None and found.tuning_room == math.inf
    assert summary.arms[1].verdict == "inconclusive"
    assert "one tuning seed does not tell what an arm may have lost" in words.sentence(summary, summary.arms[1])
    assert any("the noise of tuning is not known" in warning for warning in summary.warnings)


def test_a_tuning_run_that_stalled_is_named_and_adds_nothing_to_the_noise() -> None:
    draw = np.random.default_rng(3)
    arms = [tune(draw, name, Curve(1e-2, 0.1), 0.004) for name in ("pre", "post")]
    stuck = StudyTrial(settings={RATE: 0.1}, losses=(5.9, 2.4), runs=("a", "b"), stalled=1)
    with_one = [arms[0], arms[1].model_copy(update={"curve": (), "trials": (*arms[1].trials, stuck)})]
    at_best = {"curve": (), "chosen": min(arms[1].trials, key=lambda trial: trial.loss or math.inf).settings}
    without, found = (
        choices([each[0], each[1].model_copy(update=at_best)])["post"].penalty.bound(0.05) for each in (arms, with_one)
    )
    assert found == without < 0.1
    assert "At train.lr 0.1, 1 of 2 seeds stalled." in rate_words.taken("post", with_one[1], None)


def test_a_pair_of_seeds_far_apart_is_named_and_widens_no_other_arm(tmp_path: Path) -> None:
    """An arm of `studies/value_streams.yaml` did that at the highest rate of its curve."""
    draw = np.random.default_rng(3)
    arms = [tune(draw, name, Curve(1e-2, 0.5), 0.004) for name in ("pre", "post", "double")]
    top = max(arms[2].trials, key=lambda trial: trial.settings[RATE] if trial.settings[RATE] in arms[2].curve else 0)
    apart = top.model_copy(update={"losses": (top.losses[0], top.losses[0] + 0.4)})
    spiked = arms[2].model_copy(update={"trials": tuple(apart if t is top else t for t in arms[2].trials)})
    before, after = choices(arms), choices([*arms[:2], spiked])
    assert before["pre"].penalty.bound(0.05) * 1.5 > after["pre"].penalty.bound(0.05)
    assert (after["double"].erratic, after["pre"].erratic) == ((apart,), ())
    found = rate_words.taken("double", spiked, None, after["double"].erratic)
    assert f"At train.lr {top.settings[RATE]}, seeds ended 0.4 nats apart, far more than at other rates" in found
