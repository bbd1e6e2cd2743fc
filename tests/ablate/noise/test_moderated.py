"""Moderated variances against a rewrite in arrays, false verdicts and power by simulation, and what must not be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import special, stats

import ablate
from reports.judge.noise import Noise
from reports.judge.noise.moderated import NoiseModel
from tests.many import few

Losses = NDArray[np.float64]
SD = 0.012
LEVEL = 0.05


def p_values(y: Losses, history: float | None = None) -> Losses:
    """p of every arm against the first, uncorrected, from losses (tables, arms, seeds) at common seeds: the formulas of
    the rule written over arrays."""
    d = y.shape[-1] - 1
    square = y.var(axis=-1, ddof=1)
    logs = np.log(square) - special.digamma(d / 2) + math.log(d / 2)

    def mean_of_others(weights: Losses) -> Losses:
        past = (0.0, 0.0) if history is None else (2 * math.log(history) / 0.5, 1 / 0.5)
        total, weight = (weights * logs).sum(-1, keepdims=True) + past[0], weights.sum(-1, keepdims=True) + past[1]
        return np.asarray(np.exp((total - weights * logs) / (weight - weights)))

    equal = np.full_like(square, 1 / (float(special.polygamma(1, d / 2)) + 0.25))
    ratio = square / mean_of_others(equal)
    unusual = np.minimum(stats.f.sf(ratio, d, 9), stats.f.cdf(ratio, d, 9))
    centre = mean_of_others(equal * np.clip(unusual / 0.02, 1e-3, 1.0))

    def moderated(of: Losses) -> tuple[Losses, Losses]:
        own = of.var(axis=-1, ddof=1)
        prior = 9 * np.clip(stats.f.sf(own / centre, d, 9) / 0.8, 0, 1)
        prior = prior * np.clip(stats.f.cdf(own / centre, d, 9) / 0.02, 0, 1) ** 2
        return (prior * centre + d * own) / (prior + d), prior + d

    capped = np.minimum(y, (np.median(y, axis=-1) + 4 * np.sqrt(centre))[..., None])
    whole, cut = (y, *moderated(y)), (capped, *moderated(capped))

    # Analysis of variance of standardised residuals: seeds against the rest.
    z = (capped - capped.mean(-1, keepdims=True)) / np.sqrt(cut[1])[..., None]
    rest = d * (y.shape[1] - 1)
    of_seeds, total = y.shape[1] * (z.mean(1) ** 2).sum(-1), (z**2).sum((-1, -2))
    of_rest = (total - of_seeds) / rest
    alone = np.clip(2 * stats.f.sf(of_seeds / d / of_rest, d, rest) / 0.1, 0, 1)[:, None]
    left = np.minimum(1, of_rest / (total / (d + rest)))[:, None]

    def t_of(arm: tuple[Losses, Losses, Losses], base: tuple[Losses, Losses, Losses]) -> tuple[Losses, Losses]:
        a, b = arm[1][:, 1:], base[1][:, :1]
        freedom = (a + b) ** 2 / (a**2 / arm[2][:, 1:] + b**2 / base[2][:, :1])
        paired = (1 - alone) * np.minimum(rest, freedom)
        whole = alone * freedom + paired
        own = (arm[0][:, 1:] - base[0][:, :1]).var(axis=-1, ddof=1) / (a + b)
        variance = (a + b) * (alone * freedom + paired * np.maximum(left, np.minimum(own, 1))) / whole
        gaps = arm[0][:, 1:].mean(-1) - base[0][:, :1].mean(-1)
        return gaps / np.sqrt(variance / y.shape[-1]), whole

    worse, better = t_of(cut, whole), t_of(whole, cut)
    is_worse = y[:, 1:].mean(-1) > y[:, :1].mean(-1)
    return np.minimum(1, 2 * np.where(is_worse, stats.t.sf(*worse), stats.t.cdf(*better)))


def holm(p: Losses) -> Losses:
    """Holm's corrected p along the last axis."""
    order, tests = np.argsort(p, axis=-1), p.shape[-1]
    steps = np.maximum.accumulate(np.take_along_axis(p, order, -1) * np.arange(tests, 0, -1), axis=-1)
    found = np.empty_like(p)
    np.put_along_axis(found, order, np.minimum(steps, 1.0), axis=-1)
    return found


def table(y: Losses) -> dict[int, dict[int, float]]:
    return {arm: dict(enumerate(of)) for arm, of in enumerate(y.tolist())}


@pytest.mark.parametrize("history", [None, SD], ids=["alone", "with like runs"])
@pytest.mark.parametrize(("arms", "seeds"), [(2, 3), (3, 3), (5, 5), (4, 9), (3, 2)])
def test_p_is_that_of_the_rule_written_over_arrays(arms: int, seeds: int, history: float | None) -> None:
    draw = np.random.default_rng(arms)
    y = draw.normal(0, SD, (60, arms, seeds)) + draw.normal(0, SD, (60, 1, seeds)) * draw.choice([0, 3], (60, 1, 1))
    y[:15, 1, 0] += 0.3  # beyond the cap
    y[15:30, 0] *= 5
    expected = p_values(y, history)
    for each, wanted in zip(y, expected, strict=True):
        model = NoiseModel(table(each), history=history and Noise(history, 9))
        found = [gap.p() if (gap := model.difference(arm, 0)) else None for arm in range(1, arms)]
        assert found == pytest.approx(wanted.tolist(), rel=1e-9, abs=1e-12)


def test_disjoint_seeds_are_welchs_test_of_moderated_variances() -> None:
    draw = np.random.default_rng(0)
    own, others = draw.normal(0, SD, 9).tolist(), draw.normal(0.02, SD, 4).tolist()
    model = NoiseModel({"base": dict(enumerate(own)), "arm": dict(enumerate(others, 100))})
    gap = model.difference("arm", "base")
    (a, a_freedom), (b, b_freedom) = model.moderated("arm"), model.moderated("base")
    error = a / 4 + b / 9
    freedom = error**2 / ((a / 4) ** 2 / a_freedom + (b / 9) ** 2 / b_freedom)
    assert gap is not None
    assert gap.p() == pytest.approx(2 * stats.t.sf((np.mean(others) - np.mean(own)) / math.sqrt(error), freedom))
    low, high = stats.t.interval(0.95, freedom, gap.value, math.sqrt(error))
    assert gap.interval(0.05) == pytest.approx((low, high))


def test_an_arm_alone_has_its_own_variance_and_two_have_each_others() -> None:
    own = {0: 1.0, 1: 1.1, 2: 1.3}
    assert NoiseModel({"a": own}).moderated("a") == (pytest.approx(np.var(list(own.values()), ddof=1)), 2)
    both = NoiseModel({"a": own, "b": {3: 1.0, 4: 1.2, 5: 1.3}})
    unbiased = np.var([1.0, 1.2, 1.3], ddof=1) / math.exp(special.digamma(1))
    assert both.centre("a") == pytest.approx(unbiased)


def test_arms_without_scatter_allow_no_test() -> None:
    """Rounded losses, and accuracies at chance, on the same seeds and on others."""
    for first in (0, 10):
        same = {"a": dict.fromkeys(range(3), 0.25), "b": dict.fromkeys(range(first, first + 3), 0.25)}
        assert NoiseModel(same).difference("b", "a") is None
    assert NoiseModel({"a": {0: 1.0}, "b": {0: 2.0}}).difference("b", "a") is None
    assert NoiseModel({}).run is None


# False verdicts. Each row draws tables whose arms have one mean, whatever else differs.

Draw = Callable[[np.random.Generator, int], Losses]


@dataclass(frozen=True)
class Null:
    """Arms and seeds, standard deviations relative to the usual one, and the largest share of false verdicts."""

    arms: int
    seeds: int
    scales: Mapping[int, float] | None = None
    unlike: float = 0.0
    kind: str = "normal"
    common: float = 0.0
    copies: bool = False
    bad: tuple[float, float] | None = None
    most: float = LEVEL

    def draw(self, draw: np.random.Generator, tables: int) -> Losses:
        shape = (tables, self.arms, self.seeds)
        if self.kind == "t3":
            z = draw.standard_t(3, shape) / math.sqrt(3)
        elif self.kind == "lognormal":
            z = np.exp(0.7 * draw.standard_normal(shape))
            z = (z - math.exp(0.245)) / math.sqrt((math.exp(0.49) - 1) * math.exp(0.49))
        else:
            z = draw.standard_normal(shape)
        sd = np.exp(self.unlike * draw.standard_normal((tables, self.arms, 1)))
        for arm, scale in (self.scales or {}).items():
            sd[:, arm] *= scale
        shared = draw.standard_normal((tables, 1, self.seeds))
        y = SD * (math.sqrt(self.common) * shared + math.sqrt(1 - self.common) * sd * z)
        if self.copies:
            y[:, 2] = y[:, 1] + SD / 4 * draw.standard_normal((tables, self.seeds))
        return np.asarray(y)


NULLS = {
    "equal, 5 × 5": Null(5, 5),
    "equal, 3 × 3": Null(3, 3),
    "equal, 2 × 3": Null(2, 3),
    "equal, 3 × 9": Null(3, 9),
    "noise as recorded, 5 × 5": Null(5, 5, unlike=0.25),
    "noise as recorded, 3 × 3": Null(3, 3, unlike=0.25),
    "t with 3 degrees of freedom, 3 × 3": Null(3, 3, kind="t3"),
    "t with 3 degrees of freedom, 5 × 5": Null(5, 5, kind="t3"),
    "lognormal, 3 × 3": Null(3, 3, kind="lognormal"),
    "lognormal, 5 × 5": Null(5, 5, kind="lognormal"),
    "near-copies beside a third, 3 seeds": Null(3, 3, copies=True),
    "near-copies beside a third, 5 seeds": Null(3, 5, copies=True),
    "common seeds are 0.8 of the variance, 3 × 5": Null(3, 5, common=0.8),
    "common seeds are 0.4 of the variance, 3 × 5": Null(3, 5, common=0.4),
    **{f"baseline {s} × as noisy, 5 × 5": Null(5, 5, {0: s}, most=0.065) for s in (2, 3, 5)},
    **{f"an arm {s} × as noisy, 5 × 5": Null(5, 5, {1: s}, most=0.065) for s in (3, 5)},
    **{f"baseline {s} × as noisy, 3 × 3": Null(3, 3, {0: s}, most=0.09) for s in (2, 3, 5)},
    **{f"an arm {s} × as noisy, 3 × 3": Null(3, 3, {1: s}, most=0.09) for s in (3, 5)},
}


@pytest.mark.parametrize("history", [None, SD], ids=["alone", "with like runs"])
@pytest.mark.parametrize("name", few(NULLS, 10))
def test_false_verdicts_are_as_rare_as_promised(name: str, history: float | None) -> None:
    """Over arrays, 20,000 tables a row, so that half a per cent too many is seen."""
    null, tables = NULLS[name], 20_000
    p = p_values(null.draw(np.random.default_rng(1), tables), history)
    wrong = (holm(p).min(axis=-1) < LEVEL).mean()
    assert wrong <= null.most + 2 * math.sqrt(null.most * (1 - null.most) / tables), f"{100 * wrong:.2f} %"


@pytest.mark.parametrize(
    ("seeds", "difference", "history", "least"),
    [(3, 0.03, None, 0.47), (3, 0.05, None, 0.88), (5, 0.03, None, 0.83), (5, 0.05, None, 0.99), (3, 0.03, SD, 0.58)],
)
def test_power_of_three_arms_whose_rates_are_known(
    seeds: int, difference: float, history: float | None, least: float
) -> None:
    y = Null(3, seeds).draw(np.random.default_rng(2), 10_000)
    y[:, 1] += difference
    assert np.mean(holm(p_values(y, history))[:, 0] < LEVEL) >= least


def test_what_seeds_have_in_common_makes_differences_sharper() -> None:
    """Of 0.02 nats, with five seeds that are 0.8 of the variance: 98 % are found, in place of half without."""
    y = Null(3, 5, common=0.8).draw(np.random.default_rng(3), 4000)
    y[:, 1] += 0.02
    apart = Null(3, 5).draw(np.random.default_rng(3), 4000)
    apart[:, 1] += 0.02
    found, without = (np.mean(holm(p_values(each))[:, 0] < LEVEL) for each in (y, apart))
    assert found > 0.95
    assert without < 0.55


# The same by `ablate.compare` itself.


def frame(losses: Mapping[str, Mapping[int, float]]) -> pl.DataFrame:
    rows = [(arm, seed, loss) for arm, of in losses.items() for seed, loss in of.items()]
    return pl.DataFrame(rows, schema=["arm", "seed", "loss"], orient="row")


def verdicts(losses: Mapping[str, Mapping[int, float]], **options: float) -> dict[str, str]:
    found = ablate.compare(frame(losses), **options).contrasts  # type: ignore[arg-type]
    return dict(zip(found["arm"], found["verdict"], strict=True))


def named(y: Losses) -> dict[str, dict[int, float]]:
    return {f"arm {arm}": of for arm, of in table(y).items()}


@pytest.mark.slow
@pytest.mark.parametrize("history", [None, SD], ids=["alone", "with like runs"])
@pytest.mark.parametrize("name", NULLS)
def test_compare_names_a_winner_where_the_arrays_do(name: str, history: float | None) -> None:
    """Table by table, so that the rates of 20,000 tables hold for it, too."""
    null, tables = NULLS[name], 1000
    options = {} if history is None else {"sigma": history}
    drawn = null.draw(np.random.default_rng(4), tables)
    found = [bool({"better", "worse"} & set(verdicts(named(y), **options).values())) for y in drawn]
    np.testing.assert_array_equal(found, holm(p_values(drawn, history)).min(axis=-1) < LEVEL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "loud", "most"),
    [
        *(((9, 3, 3), 1.0, LEVEL), ((10, 2, 2), 1.0, LEVEL), ((5, 3, 5), 1.0, LEVEL)),
        *(((9, 3, 3), 3.0, 0.13), ((10, 2, 2), 3.0, 0.18), ((5, 3, 5), 3.0, 0.09)),
    ],
)
def test_compare_of_disjoint_seeds_seldom_names_a_winner(counts: Sequence[int], loud: float, most: float) -> None:
    """Other arms than the largest have `loud` times its noise, which two or three runs cannot show: docs/statistics.md
    says so."""
    draw, tables, wrong = np.random.default_rng(5), 1000, 0
    for _ in range(tables):
        first, losses = itertools.count(0, 100), {}
        for arm, count in enumerate(counts):
            scale = loud if count < max(counts) else 1.0
            losses[f"arm {arm}"] = dict(enumerate(draw.normal(0, SD * scale, count).tolist(), next(first)))
        wrong += bool({"better", "worse"} & set(verdicts(losses).values()))
    print(f"{counts}, {loud} ×: {100 * wrong / tables:.1f} %")
    assert wrong / tables <= most + 2 * math.sqrt(most / tables)


@pytest.mark.slow
@pytest.mark.parametrize(("arms", "seeds"), [(3, 3), (5, 5)])
@pytest.mark.parametrize("cost", [0.1, 0.3])
@pytest.mark.parametrize("bad", [0.05, 0.1, 0.2])
def test_an_arm_with_bad_seeds_is_not_better(bad: float, cost: float, arms: int, seeds: int) -> None:
    """Its good runs are like those of the others, so that its mean is worse: `better` is wrong of it, and either of the
    others. (If its good runs were better by as much as its bad ones cost, a study without a bad run would be one of a
    better arm, and no rule can tell.)"""
    draw, tables, wrong = np.random.default_rng(6), 1000, 0
    for _ in range(tables):
        y = draw.normal(0, SD, (arms, seeds))
        y[1] += cost * (draw.random(seeds) < bad)
        said = verdicts(named(y))
        wrong += said.pop("arm 1") == "better" or bool({"better", "worse"} & set(said.values()))
    assert wrong / tables <= LEVEL + 2 * math.sqrt(LEVEL / tables)


# What must not be.


def test_an_arm_whose_mean_is_worse_is_not_better_for_its_good_runs() -> None:
    base = dict(enumerate([4.001, 4.015, 3.989, 4.012, 3.997]))
    other = dict(enumerate([4.0135, 3.9996, 4.0071, 3.9883, 3.9956]))
    new = dict(enumerate([3.957, 3.983, 4.312, 3.960, 3.969]))
    found = ablate.compare(frame({"base": base, "new": new, "other": other})).contrasts.row(0, named=True)
    assert found["verdict"] == "inconclusive" and found["difference"] == pytest.approx(0.0334)
    assert "seed 2 of new ended 0.34 above the others: without it the difference is -0.036" in found["reason"]
    good = {seed: loss for seed, loss in new.items() if seed != 2}
    assert verdicts({"base": base, "new": good, "other": other})["new"] == "better"


FAVOUR = {"better": 1, "no difference": 0, "inconclusive": 0, "cannot tell": 0, "worse": -1, "diverged": -1}


@pytest.mark.parametrize("seed", range(40))
def test_a_failed_run_counts_like_a_bad_one(seed: int) -> None:
    """Whichever run of whichever arm ends in NaN: no verdict on it is more favourable than with a bad finite loss, nor
    with that than with NaN."""
    draw = np.random.default_rng(seed)
    y = draw.normal(0, SD, (3, int(draw.integers(3, 7)))) + draw.choice([-0.06, 0, 0.06], 3)[:, None]
    arm, run = int(draw.integers(3)), int(draw.integers(y.shape[1]))
    failed, poor = y.copy(), y.copy()
    failed[arm, run], poor[arm, run] = np.nan, y.max() + 40 * SD
    found = [verdicts(named(each)) for each in (failed, poor)]
    if arm:
        one, other = (FAVOUR[said[f"arm {arm}"]] for said in found)
        assert one == other
    else:
        for name in ("arm 1", "arm 2"):  # what is bad for the baseline is good for the others
            one, other = (FAVOUR[said[name]] for said in found)
            assert one == other


@pytest.mark.parametrize("seeds", [4, 5, 9])
def test_a_bad_run_of_the_loser_hides_no_difference_of_two_arms(seeds: int) -> None:
    """The bad run's arm is the only one that tells what noise is usual."""
    draw = np.random.default_rng(seeds)
    y = draw.normal(0, SD, (2, seeds)) + np.array([0, 0.1])[:, None]
    for bad in (0.5, 1.0, 5.0, 1000.0, np.nan):
        y[1, 0] = bad
        assert verdicts(named(y)) == {"arm 1": "worse"}, bad


def test_losses_that_differ_by_one_amount_at_every_seed_are_told_apart_as_if_unpaired() -> None:
    base, arm = [4.00, 4.01, 3.99], [5.00, 5.01, 4.99]
    assert verdicts({"base": dict(enumerate(base)), "arm": dict(enumerate(arm))}) == {"arm": "worse"}
    failed = verdicts({"base": dict(enumerate(base)), "arm": {0: 5.0, 1: 5.01, 2: math.nan}})
    assert failed == {"arm": "worse"}
    assert verdicts({"base": dict(enumerate(base)), "arm": dict(enumerate(base))}) == {"arm": "cannot tell"}


def test_losses_of_few_digits_that_differ_alike_are_not_certain_to_many() -> None:
    """Two decimals: no less than Welch's p-value, whatever rounding leaves of the variance of the differences."""
    for base, arm in (([2.99, 3.00, 3.01], [3.03, 3.04, 3.05]), ([3.01, 3.02, 3.04], [3.00, 3.01, 3.03])):
        row = ablate.compare(frame({"base": dict(enumerate(base)), "arm": dict(enumerate(arm))})).contrasts
        found, welch = row["p"][0], stats.ttest_ind(arm, base, equal_var=False).pvalue
        assert welch <= found < 1, (found, welch)


def test_an_arm_whose_good_runs_are_better_is_not_worse_for_its_failures() -> None:
    base = [4.007, 4.016, 3.991, 4.02, 3.997, 4.019, 3.995, 3.991, 4.003]
    arm = [3.995, 3.997, 4.001, 4.000, *[math.nan] * 5]
    losses = {"base": dict(enumerate(base)), "arm": dict(enumerate(arm))}
    row = ablate.compare(frame(losses)).contrasts.row(0, named=True)
    assert row["verdict"] == "inconclusive" and row["low"] <= row["difference"] <= row["high"]


def test_failed_runs_of_both_arms_leave_it_open() -> None:
    losses = {"base": {0: 4.0, 1: 4.01, 2: math.nan}, "arm": {0: 4.06, 1: 4.05, 2: math.nan}}
    row = ablate.compare(frame(losses)).contrasts.row(0, named=True)
    assert (row["verdict"], row["p"]) == ("inconclusive", 1.0)
    assert (row["low"], row["high"]) == (-math.inf, math.inf)


@pytest.mark.parametrize("seed", range(20))
def test_a_worse_run_never_improves_a_verdict(seed: int) -> None:
    draw = np.random.default_rng(seed)
    y = draw.normal(0, SD, (3, 5)) + np.array([0, 0.06, -0.06])[:, None]
    standing = [FAVOUR[verdicts(named(y))[name]] for name in ("arm 1", "arm 2")]
    for step in (3, 10, 30, 100):
        for arm in (1, 2):
            changed = y.copy()
            changed[arm, 0] = y[arm].max() + step * SD
            assert FAVOUR[verdicts(named(changed))[f"arm {arm}"]] <= standing[arm - 1]


def test_the_mean_over_all_runs_is_what_is_compared() -> None:
    draw = np.random.default_rng(7)
    base, arm = draw.normal(4, SD, 9), draw.normal(4, SD, 5)
    losses = {"base": dict(enumerate(base.tolist())), "arm": dict(enumerate(arm.tolist()))}
    row = ablate.compare(frame(losses)).contrasts.row(0, named=True)
    assert row["difference"] == pytest.approx(arm.mean() - base.mean())
    assert (row["paired"], row["reason"].partition(";")[0]) == (5, "5 and 9 seeds, 5 in common")


def test_a_growing_table_is_judged_at_planned_numbers_of_seeds() -> None:
    """Looks at 3, 5, 8 and 10 seeds have a quarter of the 5 % each."""
    y = np.random.default_rng(8).normal(0, SD, (2, 10))
    y[1] += 0.03
    for seeds in range(3, 11):
        losses = named(y[:, :seeds])
        found = ablate.compare(frame(losses), planned_seeds=10).contrasts.row(0, named=True)
        if seeds in (3, 5, 8, 10):
            alone = ablate.compare(frame(losses)).contrasts.row(0, named=True)
            assert found["p"] == pytest.approx(min(1.0, 4 * alone["p"]))
        else:
            assert found["verdict"] == "no verdict" and f"{seeds} seeds are no planned look" in found["reason"]
    note = ablate.compare(frame(named(y))).notes[-1]
    assert "12 to 15 % of cases" in note


@pytest.mark.parametrize("arms", [2, 3, 5])
def test_judging_a_growing_table_until_something_shows(arms: int) -> None:
    """What the note of `compare` says of it, and what planned looks make of it."""
    y = Null(arms, 10).draw(np.random.default_rng(9), 3000)
    least = {seeds: holm(p_values(y[:, :, :seeds])).min(axis=-1) for seeds in range(3, 11)}
    shown = np.mean(np.any([p < LEVEL for p in least.values()], axis=0))
    planned = np.mean(np.any([least[seeds] < LEVEL / 4 for seeds in (3, 5, 8, 10)], axis=0))
    assert 0.115 < shown < 0.16
    assert planned < LEVEL + 0.008
