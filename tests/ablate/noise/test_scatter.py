"""The pooled noise against least squares on dummy variables, refits without a run or a row, and by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from ablate.noise.scatter import ALIKE, LEVEL, Noise, Odd, Scatter, scatter
from reports.findings.noise import StudyNoise
from tests.regression import design, least_squares

SD = 0.012
Table = dict[str, dict[int, float]]


def drawn(draw: np.random.Generator, arms: int, seeds: int, missing: float = 0.0, shared: float = 0.05) -> Table:
    """Losses of arms that differ, at seeds whose effects all arms share; some runs are missing."""
    losses = draw.normal(2.3, 0.1, (arms, 1)) + draw.normal(0, shared, seeds) + draw.normal(0, SD, (arms, seeds))
    there = draw.random((arms, seeds)) >= missing
    return {
        f"arm {arm}": {seed: float(losses[arm, seed]) for seed in range(seeds) if there[arm, seed]}
        for arm in range(arms)
    }


def cells_of(*tables: Mapping[str, Mapping[int, float]]) -> tuple[list[tuple[object, object]], list[float]]:
    """(row, block) and loss of every run; blocks of different tables are different."""
    found: list[tuple[object, object]] = []
    losses = []
    for place, table in enumerate(tables):
        for row, of in table.items():
            for seed, loss in of.items():
                found.append(((place, row), (place, seed)))
                losses.append(loss)
    return found, losses


def expected(*tables: Mapping[str, Mapping[int, float]]) -> Noise:
    squares, freedom = least_squares(*cells_of(*tables))
    return Noise(math.sqrt(squares / freedom), freedom)


def unlike(table: Table, found: Scatter) -> Table:
    """Without the rows that count as one with another."""
    return {row: of for row, of in table.items() if row not in found.alike}


def close(found: Noise | None, other: Noise) -> bool:
    return found is not None and found.freedom == other.freedom and found.sd == pytest.approx(other.sd)


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.4])
def test_the_noise_is_that_of_least_squares_on_dummy_variables(missing: float) -> None:
    draw = np.random.default_rng(1)
    for _ in range(30):
        table = drawn(draw, int(draw.integers(2, 6)), int(draw.integers(3, 7)), missing)
        found, other = scatter(table), least_squares(*cells_of(table))[1]
        if found.odd or found.noisier:
            continue
        assert close(found.noise, expected(unlike(table, found))) if other else found.noise is None


@pytest.mark.parametrize(("arms", "seeds"), [(10, 20_000), (2000, 5)])
def test_many_seeds_or_many_arms_take_a_moment(arms: int, seeds: int) -> None:
    """Of a whole table in closed form: what the means of rows and of columns leave. Solving for either side costs the
    square of its size, so it has to be the smaller one."""
    table = drawn(np.random.default_rng(3), arms, seeds)
    losses = np.array([list(of.values()) for of in table.values()])
    left = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0) + losses.mean()
    freedom = (arms - 1) * (seeds - 1)
    found = scatter(table)
    assert not found.odd and not found.noisier
    assert close(found.noise, Noise(math.sqrt((left**2).sum() / freedom), freedom))


def test_tables_have_blocks_of_their_own_and_one_noise() -> None:
    """Seed 0 of judging runs is not seed 0 of tuning runs."""
    draw = np.random.default_rng(2)
    judging, tuning = drawn(draw, 3, 4, 0.1), drawn(draw, 4, 2)
    tuning = {f"{row} at its best rate": of for row, of in tuning.items()}
    found = scatter(judging, tuning)
    assert close(found.noise, expected(judging, tuning))
    assert found.noise is not None
    apart = [expected(each) for each in (judging, tuning)]
    assert found.noise.freedom == sum(each.freedom for each in apart)
    assert found.noise.sd**2 * found.noise.freedom == pytest.approx(sum(e.sd**2 * e.freedom for e in apart))


def test_two_arms_have_the_noise_of_their_paired_differences() -> None:
    draw = np.random.default_rng(3)
    table = drawn(draw, 2, 6)
    base, arm = (np.array(list(of.values())) for of in table.values())
    found = scatter(table).noise
    assert found is not None
    assert found.freedom == 5
    assert found.sd * math.sqrt(2 / 6) == pytest.approx(stats.sem(arm - base))


def test_seeds_that_have_nothing_in_common_are_no_blocks() -> None:
    """The root of the mean of variances within rows, as a two-sample t-test pools them."""
    draw = np.random.default_rng(10)
    for _ in range(10):
        table = drawn(draw, 2, 5)
        found = scatter(table, blocks=False)
        if found.odd or found.noisier:
            continue
        base, arm = (list(of.values()) for of in table.values())
        assert found.noise is not None
        assert found.noise.freedom == 8
        error = found.noise.sd * math.sqrt(2 / 5)
        assert (np.mean(arm) - np.mean(base)) / error == pytest.approx(stats.ttest_ind(arm, base).statistic)


def test_without_residuals_nothing_is_known() -> None:
    assert scatter().noise is None
    assert scatter({"a": {0: 2.3}, "b": {0: 2.4}}).noise is None
    assert scatter({"a": {0: 2.3, 1: 2.4}, "b": {2: 2.4, 3: 2.3}}).noise is None  # no seed is shared: rows, not noise
    equal = scatter({"a": {s: 2.30 + s / 7 for s in range(3)}, "b": {s: 2.37 + s / 7 for s in range(3)}})
    assert equal.noise is None


def test_a_row_that_moves_with_another_adds_nothing() -> None:
    """An arm whose change has no effect has the losses of its baseline, up to rounding."""
    draw = np.random.default_rng(8)
    for _ in range(20):
        table = drawn(draw, 3, 5)
        copied = table | {"copy": {seed: loss + 1 / 3 for seed, loss in table["arm 1"].items()}}
        alone, beside = scatter(table), scatter(copied)
        assert beside.noise == alone.noise
        assert beside.odd == alone.odd | ({"copy": alone.odd["arm 1"]} if "arm 1" in alone.odd else {})
        assert beside.noisier.keys() - {"copy"} == alone.noisier.keys()
        assert ("copy" in beside.noisier) == ("arm 1" in alone.noisier)


@pytest.mark.parametrize("seeds", [4, 8])
def test_two_rows_that_move_together_count_as_one(seeds: int) -> None:
    """Their difference scatters by a twentieth of the noise: a norm's ε, or an approximation of GELU."""
    draw = np.random.default_rng(12)
    for _ in range(20):
        table = drawn(draw, 3, seeds)
        near = {seed: loss + draw.normal(0.01, SD / 20) for seed, loss in table["arm 1"].items()}
        alone, beside = scatter(table), scatter(table | {"near": near})
        if alone.odd or alone.alike or alone.noisier or beside.odd or beside.noisier:
            continue
        assert beside.noise == alone.noise
        assert beside.alike == {"near": "arm 1"}


def test_rows_are_alike_where_the_f_of_their_difference_says_so() -> None:
    draw, merged = np.random.default_rng(13), 0
    for _ in range(200):
        table = drawn(draw, 3, 6)
        found = scatter(table)
        if found.odd or found.noisier:
            continue
        pairs = {
            (one, other): np.var([table[one][s] - table[other][s] for s in range(6)], ddof=1)
            for one, other in itertools.combinations(table, 2)
        }
        (one, other), variance = min(pairs.items(), key=lambda each: each[1])
        rest = expected({row: of for row, of in table.items() if row != other})
        p = stats.f.cdf(variance / (2 * rest.sd**2), 5, rest.freedom)
        assert found.alike == ({other: one} if p < ALIKE / 3 else {})
        merged += bool(found.alike)
    assert 2 <= merged <= 30  # of unlike arms, at most one study in ten


def left_out(table: Table, row: str, seed: int) -> tuple[float, float]:
    """The distance of a run from what the others foretell, and its p-value as a refit without it gives it; 1 where
    they foretell nothing."""
    cells, losses = cells_of(table)
    at = cells.index(((0, row), (0, seed)))
    x, y = design(cells), np.array(losses)
    others, rest = np.delete(x, at, axis=0), np.delete(y, at)
    fitted, *_ = np.linalg.lstsq(others, rest, rcond=None)
    residuals = rest - others @ fitted
    rank = int(np.linalg.matrix_rank(others))
    if rank < np.linalg.matrix_rank(x):
        return 0.0, 1.0
    freedom = len(rest) - rank
    error = math.sqrt(residuals @ residuals / freedom * (1 + x[at] @ np.linalg.pinv(others.T @ others) @ x[at]))
    above = float(y[at] - x[at] @ fitted)
    return above, float(2 * stats.t.sf(abs(above) / error, freedom))


@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_an_odd_run_is_as_far_off_as_a_refit_without_it_says(missing: float) -> None:
    """And it is named exactly where its p-value, times the number of runs, is below the level."""
    draw, named = np.random.default_rng(4), 0
    for _ in range(60):
        table = drawn(draw, 4, 8, missing)
        row, seed = "arm 2", max(table["arm 2"])
        table[row][seed] += draw.uniform(0.03, 0.12)
        p_values = {(r, s): left_out(table, r, s)[1] for r, of in table.items() if len(of) >= 3 for s in of}
        least, runs = min(p_values.values()), sum(map(len, table.values()))
        found = scatter(table)
        if runs * least >= LEVEL:
            assert not found.odd
        elif len(found.odd) == 1 and not found.noisier and not found.alike:
            named += 1
            ((name, odd),) = found.odd.items()
            assert p_values[name, odd.seed] == pytest.approx(least)  # others may tie, where only two arms have a seed
            assert odd.above == pytest.approx(left_out(table, name, odd.seed)[0])
            del table[name][odd.seed]
            assert close(found.noise, expected(unlike(table, found)))
    assert named > 15


@pytest.mark.parametrize("seeds", [3, 4])
def test_of_few_seeds_an_odd_run_is_named_and_its_arm_has_noise_of_its_own(seeds: int) -> None:
    draw, alone = np.random.default_rng(10), 0
    for _ in range(20):
        table = drawn(draw, 4, seeds)
        table["arm 2"][1] += 0.4
        found = scatter(table)
        if len(found.odd) > 1 or found.alike:
            continue
        alone += 1
        rest = {row: of for row, of in table.items() if row != "arm 2"}
        assert found.odd == {"arm 2": Odd(1, pytest.approx(0.4, abs=0.1), left_out=False)}
        whole, without = expected(table), expected(rest)
        own = (whole.sd**2 * whole.freedom - without.sd**2 * without.freedom) / (whole.freedom - without.freedom)
        assert found.noisier == {"arm 2": pytest.approx(math.sqrt(own))}
    assert alone > 15


@pytest.mark.parametrize(("share", "seeds"), [(0.5, 3), (0.5, 4), (0.3, 3)])
def test_runs_that_go_two_ways_call_few_identical_arms_different(share: float, seeds: int) -> None:
    """One run in two ends a nat higher: with few seeds the others may agree by chance, beside quiet tuning runs."""
    draw, studies, wrong = np.random.default_rng(11), 400, 0
    for _ in range(studies):
        judged = {row: {s: x - 2.3 for s, x in of.items()} for row, of in drawn(draw, 2, seeds).items()}
        judged = {row: {s: x - np.mean(list(of.values())) for s, x in of.items()} for row, of in judged.items()}
        for of in judged.values():
            of.update({seed: loss + (draw.random() < share) * draw.normal(0.8, 0.3) for seed, loss in of.items()})
        tuning = {f"{row} tuned": of for row, of in drawn(draw, 4, 2).items()}
        noise = StudyNoise(scatter(judged, tuning), (), {})
        odd = {each.seed for each in noise.odd.values() if each.left_out}
        first, second = judged.values()
        gap = noise.difference(("arm 0", "arm 1"), [first[seed] - second[seed] for seed in first if seed not in odd])
        wrong += gap is not None and gap.p() < 0.05
    assert binomial(wrong, studies, 0.05) > 0.01, wrong


def test_of_two_arms_the_odd_run_is_the_one_far_from_its_own_seeds() -> None:
    """Both runs of that seed have the same residual."""
    steady, other = [2.300, 2.312, 2.291, 2.305, 2.296], [2.402, 2.411, 2.392, 2.404, 2.399]
    for names in (("a", "b"), ("b", "a")):
        table = {names[0]: dict(enumerate(steady)), names[1]: dict(enumerate([*other[:4], other[4] + 0.4]))}
        found = scatter(table)
        assert found.odd == {names[1]: Odd(4, pytest.approx(0.4, abs=0.01))}


def test_a_noisier_row_is_split_off_where_two_fits_say_so() -> None:
    """F of the fits with and without the row of the largest residuals, corrected for the number of rows."""
    draw, split = np.random.default_rng(5), 0
    for _ in range(60):
        table = drawn(draw, 4, 6)
        for seed in table["arm 1"]:
            table["arm 1"][seed] += draw.normal(0, 5 * SD)
        found = scatter(table)
        if found.odd or found.alike:
            continue
        squares, freedom = least_squares(*cells_of(table))
        fits = {row: least_squares(*cells_of({r: of for r, of in table.items() if r != row})) for row in table}
        row = min(fits, key=lambda each: fits[each][0])
        rest, left = fits[row]
        ratio = (squares - rest) / (freedom - left) / (rest / left)
        if len(table) * stats.f.sf(ratio, freedom - left, left) < LEVEL:
            split += 1
            assert found.noisier[row] == pytest.approx(math.sqrt((squares - rest) / (freedom - left)))
            if len(found.noisier) == 1:
                assert close(found.noise, Noise(math.sqrt(rest / left), left))
        else:
            assert found.noisier == {}
    assert split > 20


def binomial(count: int, studies: int, level: float) -> float:
    return float(stats.binomtest(count, studies, level, alternative="greater").pvalue)


@pytest.mark.parametrize(("arms", "seeds", "missing"), [(2, 8, 0.0), (4, 5, 0.0), (4, 5, 0.2), (9, 3, 0.0)])
def test_few_studies_of_even_noise_lose_a_run_or_a_row(arms: int, seeds: int, missing: float) -> None:
    draw, studies, odd, noisier = np.random.default_rng(6), 400, 0, 0
    for _ in range(studies):
        found = scatter(drawn(draw, arms, seeds, missing))
        odd, noisier = odd + bool(found.odd), noisier + bool(found.noisier)
    assert min(binomial(odd, studies, LEVEL), binomial(noisier, studies, LEVEL)) > 0.001, (odd, noisier)


def test_tuning_runs_join_where_their_noise_is_that_of_judging_runs() -> None:
    """An F-test of both mean squares decides. All rows of a louder table are noisier."""
    draw = np.random.default_rng(9)
    for times in (1.0, 1.5, 30.0, 1 / 30):
        for _ in range(20):
            judging = drawn(draw, 3, 4)
            tuning = {f"{row} tuned": of for row, of in drawn(draw, 6, 2).items()}
            tuning = {row: {s: 2.3 + times * (x - 2.3) for s, x in of.items()} for row, of in tuning.items()}
            apart = [expected(each) for each in (judging, tuning)]
            ratio = (apart[1].sd / apart[0].sd) ** 2
            p = 2 * min(f(ratio, apart[1].freedom, apart[0].freedom) for f in (stats.f.sf, stats.f.cdf))
            found = scatter(judging, tuning)
            if found.odd or found.alike or len(set(found.noisier.values())) > 1 or 0 < len(found.noisier) < len(tuning):
                continue
            assert close(found.noise, apart[0] if p < LEVEL else expected(judging, tuning))
            assert found.noisier == (dict.fromkeys(tuning, pytest.approx(apart[1].sd)) if found.noisier else {})
            assert bool(found.noisier) == (p < LEVEL and ratio > 1)


def test_a_run_that_went_wrong_and_an_arm_that_is_erratic_are_found() -> None:
    """0.3 nats beside a noise of 0.012; and an arm with ten times the noise of the others."""
    draw, odd, noisier = np.random.default_rng(7), 0, 0
    for _ in range(100):
        table = drawn(draw, 4, 5)
        table["arm 3"][2] += 0.3
        odd += scatter(table).odd.keys() == {"arm 3"}
        table = drawn(draw, 4, 5)
        table["arm 3"] = {seed: loss + draw.normal(0, 10 * SD) for seed, loss in table["arm 3"].items()}
        found = scatter(table)
        noisier += "arm 3" in found.noisier or "arm 3" in found.odd
    assert odd >= 95
    assert noisier >= 95


def test_beside_noisy_rows_no_others_are_alike() -> None:
    """Two learning rates too many, as in a study of rates: the quiet arms are as far apart as their noise."""
    draw, merged, found_noisy = np.random.default_rng(14), 0, 0
    for _ in range(50):
        table = drawn(draw, 6, 5)
        for row, times in (("arm 4", 40), ("arm 5", 6)):
            table[row] = {seed: loss + draw.normal(0, times * SD) for seed, loss in table[row].items()}
        found = scatter(table)
        merged += bool(found.alike)
        found_noisy += {"arm 4", "arm 5"} <= found.noisier.keys() | found.odd.keys()
    assert merged <= 10
    assert found_noisy >= 40
