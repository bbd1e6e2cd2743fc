"""Scatter of runs about the effects of their arm, rate and seed: one standard deviation for a whole study.

    y_rs = μ_r + b_s + e_rs        rows r (an arm at a rate), blocks s (seeds shared by rows), e ~ N(0, σ²)

Blocks are fitted by least squares, so rows may lack some seeds. Several tables (judging runs, tuning runs) have blocks
of their own and σ in common. Rows that compute almost the same count as one, since two would make the noise of the
others look small; an F-test of their difference at `ALIKE` finds them. Three kinds of runs leave the pool, each by a
test at `LEVEL` that is repeated until it finds nothing (Cook & Weisberg 1982, Residuals and Influence in Regression,
§2.2); the first two are corrected for the number of candidates:

    one odd run of a row    t = e / (s₋ √(1 − h)) ~ t(ν − 1)       s₋ without the run, h its leverage
    a noisier row           F = (SS − SS₋)/(ν − ν₋) / (SS₋/ν₋)     SS₋ without the row
    a table unlike the first                                        F of their mean squares, two-sided

An odd run is reported, and left out of its arm's mean. In a row of fewer than `SPARED` judged seeds it is only
reported, and the row counts as noisier: among few seeds, a bimodal outcome looks like one bad seed. A noisier row has
its own σ. The first table has the judged runs; a later one may be unlike it, since losses of synthetic tasks, solved or
not, may lie nats apart in tuning runs and nowhere else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.fit import DIGITS, ROUNDING, Row, SeedLosses, TwoWayFit

LEVEL = 0.01
"""Share of studies without an odd run (or a noisier row, or an unlike table) in which the test finds one."""
ALIKE = 0.1
"""Share of studies of unlike arms in which two count as one: this costs some power, but makes no verdict wrong."""
MANY = 30
"""Number of rows of a table above which alike rows are not looked for: two of many hardly affect its noise."""
FEWEST = 3
"""Number of seeds of a row below which no run is odd; numbers of rows, and of seeds, below which no rows are alike."""
SPARED = 5
"""Number of judged seeds of a row below which its odd run stays in its mean."""
ENOUGH = 3
"""Degrees of freedom that must be left without a run for it to be odd: with fewer, losses that are rounded to three
digits agree by chance."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of one run in nats, with its degrees of freedom."""

    sd: float
    freedom: int

    def of_mean(self, seeds: int) -> Noise:
        """The noise of a mean over this number of seeds."""
        return Noise(self.sd / math.sqrt(seeds), self.freedom)


@dataclass(frozen=True)
class Odd:
    """A run far from the value that the other runs predict: `above` in nats, negative below. left_out: whether means
    exclude the run."""

    seed: Hashable
    above: float
    left_out: bool = True

    @property
    def side(self) -> str:
        """`above` or `below` the other seeds."""
        return "above" if self.above > 0 else "below"


@dataclass(frozen=True)
class Scatter:
    """noise: the pooled noise; None if it cannot be estimated. noisier: standard deviations of noisier rows. odd: the
    odd run of a row. alike: for a row, the earlier one with which it counts as one. quiet: pairs of alike rows whose
    difference is plainly (at `LEVEL`) quieter than the noise of the others."""

    noise: Noise | None
    noisier: Mapping[Row, float] = field(default_factory=dict)
    odd: Mapping[Row, Odd] = field(default_factory=dict)
    alike: Mapping[Row, Row] = field(default_factory=dict)
    quiet: frozenset[frozenset[Row]] = frozenset()


def scatter(*tables: SeedLosses, blocks: bool = True) -> Scatter:
    """Pool the residuals of all tables, the judged one first. No two tables may have rows of the same name.

    blocks: False if the same seed of different rows has nothing in common.
    """
    twins = {twin: row for table in tables for twin, row in _twins(table)}
    kept = [{row: dict(of) for row, of in table.items() if row not in twins} for table in tables]
    quiet = set[frozenset[Row]]()
    fewest = [(len(table) + 2) // 2 for table in kept]  # rows that stay: with fewer, one loud row looks like two alike
    while blocks and (alike := _alike(kept, fewest)):
        place, twin, row, plainly = alike
        del kept[place][twin]
        twins[twin] = row
        quiet |= {frozenset({twin, row})} if plainly else set()
    noisier: dict[Row, float] = {}
    odd: dict[Row, Odd] = {}
    noise = None
    # Remove one odd run, noisier row or unlike table at a time, and fit again: each may hide others.
    while True:
        fits, squares, freedom = _fitted(kept, blocks)
        if freedom <= 0:
            break
        if found := _odd_run(fits, squares, freedom, odd):
            place, row, run = found
            del kept[place][row][run.seed]
            odd[row] = run
        elif loud := _noisier_row(kept, fits, squares, freedom, blocks):
            place, row = loud
            rest = {name: of for name, of in kept[place].items() if name != row}
            noisier[row] = _sd_beside(rest, {row: tables[place][row]}, blocks)
            kept[place] = rest
            odd.pop(row, None)
        elif unlike := _unlike_table(fits):
            sd = math.sqrt(fits[unlike].squares / fits[unlike].freedom)
            if sd > math.sqrt(squares / freedom):
                noisier |= dict.fromkeys(kept[unlike], sd)
            kept[unlike] = {}
        else:
            noise = Noise(math.sqrt(squares / freedom), freedom)
            break
    for row in [row for row in odd if len(tables[0].get(row, range(SPARED))) < SPARED]:
        rest = {name: of for name, of in kept[0].items() if name != row}
        noisier[row] = _sd_beside(rest, {row: tables[0][row]}, blocks)
        odd[row] = replace(odd[row], left_out=False)
    for twin, row in twins.items():
        noisier |= {twin: noisier[row]} if row in noisier else {}
        odd |= {twin: odd[row]} if row in odd else {}
    return Scatter(noise, noisier, odd, twins, frozenset(quiet))


def _fitted(tables: Sequence[SeedLosses], blocks: bool) -> tuple[list[TwoWayFit], float, int]:
    """The fit of each table, and the total of squares and of degrees of freedom."""
    fits = [TwoWayFit(table, blocks) for table in tables]
    return fits, sum(fit.squares for fit in fits), sum(fit.freedom for fit in fits)


def _twins(table: SeedLosses) -> Iterator[tuple[Row, Row]]:
    """Rows that differ from an earlier one by the same amount at all seeds, each with that one.

    Runs that compute the same have losses that move together. Counted as independent, they would make the noise of the
    other rows look smaller than it is.
    """
    known: dict[Hashable, Row] = {}
    for row, of in table.items():
        if len(of) > 1:
            first = next(iter(of.values()))
            pattern = frozenset((seed, round(loss - first, DIGITS)) for seed, loss in of.items())
            if known.setdefault(pattern, row) != row:
                yield row, known[pattern]


def _alike(tables: Sequence[SeedLosses], fewest: Sequence[int]) -> tuple[int, Row, Row, bool] | None:
    """The index of a table, two of its rows (the later one first) whose difference scatters less than the noise of the
    other rows predicts, and whether it does so even at `LEVEL`; None if there are no such rows.

    Noise is estimated without noisier rows and, if more than two rows remain, without the loudest one: beside a loud
    row, any two others look alike.
    """
    pairs = [
        (place, other, one)
        for place, table in enumerate(tables)
        if max(FEWEST, fewest[place] + 1) <= len(table) <= MANY
        for one, other in itertools.combinations(table, 2)
    ]
    quietest: tuple[float, int, tuple[int, Row, Row]] | None = None
    for place, other, one in pairs:
        own, theirs = tables[place][other], tables[place][one]
        differences = [own[seed] - theirs[seed] for seed in own if seed in theirs]
        if len(differences) >= FEWEST:
            variance = float(np.var(differences, ddof=1))
            if quietest is None or variance < quietest[0]:
                quietest = variance, len(differences) - 1, (place, other, one)
    if quietest is None:
        return None
    variance, own_freedom, (place, twin, row) = quietest
    rest = [{name: of for name, of in table.items() if (at, name) != (place, twin)} for at, table in enumerate(tables)]
    while True:
        fits, squares, freedom = _fitted(rest, blocks=True)
        loud = _noisier_row(rest, fits, squares, freedom, blocks=True) if freedom > 0 else None
        if loud is None or len(rest[loud[0]]) <= 2:
            break
        del rest[loud[0]][loud[1]]
    if len(rest[place]) > 2:
        del rest[place][max(TwoWayFit(rest[place], blocks=True).by_row(), key=itemgetter(0))[1]]
        fits, squares, freedom = _fitted(rest, blocks=True)
    if freedom <= 0 or squares <= 0:
        return None
    # The difference of independent rows would have variance 2σ².
    p = float(special.fdtr(own_freedom, freedom, variance / (2 * squares / freedom)))
    return (place, twin, row, p < LEVEL / len(pairs)) if p < ALIKE / len(pairs) else None


def _odd_run(
    fits: Sequence[TwoWayFit], squares: float, freedom: int, odd: Mapping[Row, Odd]
) -> tuple[int, Row, Odd] | None:
    """The run with the largest externally studentised residual, if that is significant; at most one for each row."""
    if freedom - 1 < ENOUGH:
        return None
    least, found = LEVEL / sum(len(fit.seeds) for fit in fits), None
    for place, fit in enumerate(fits):
        free = 1 - fit.leverage
        sizes = np.repeat(fit.sizes, fit.sizes)
        rows = [row for row, size in zip(fit.rows, fit.sizes, strict=True) for _ in range(size)]
        usable = (free > 1e-9) & (sizes >= FEWEST) & np.array([row not in odd for row in rows], dtype=bool)
        if not usable.any():
            continue
        # Without a run, the sum of squares is less by its distance e² / (1 − h).
        distance = np.where(usable, fit.residuals**2 / np.where(usable, free, 1.0), 0.0)
        # If only two rows have a seed, its two runs have equal residuals: the odd one is further from its row's mean.
        furthest = distance > (1 - 1e-6) * distance.max()
        largest = int(np.argmax(np.where(furthest, abs(fit.deviations), -1.0)))
        rest = (squares - distance[largest]) / (freedom - 1)
        if rest <= 0:
            continue
        p = 2 * float(special.stdtr(freedom - 1, -math.sqrt(distance[largest] / rest)))
        if p < least:
            least = p
            found = place, rows[largest], Odd(fit.seeds[largest], float(fit.residuals[largest] / free[largest]))
    return found


def _noisier_row(
    tables: Sequence[SeedLosses], fits: Sequence[TwoWayFit], squares: float, freedom: int, blocks: bool
) -> tuple[int, Row] | None:
    """The row with the largest mean squared residual, if that is significantly larger than the others'."""
    candidates = [(square, place, row) for place, fit in enumerate(fits) for square, row in fit.by_row()]
    _, place, row = max(candidates, key=lambda each: each[0])
    without = TwoWayFit({name: of for name, of in tables[place].items() if name != row}, blocks)
    rest = squares - fits[place].squares + without.squares
    left = freedom - fits[place].freedom + without.freedom
    if not 0 < left < freedom or rest <= 0:
        return None
    own = (squares - rest) / (freedom - left)
    p = float(special.fdtrc(freedom - left, left, own / (rest / left)))
    return (place, row) if p < LEVEL / sum(len(fit.rows) for fit in fits) else None


def _unlike_table(fits: Sequence[TwoWayFit]) -> int | None:
    """The index of a later table whose noise differs significantly from that of the first."""
    for place, fit in enumerate(fits[1:], start=1):
        if fit.freedom and fits[0].freedom:
            ratio = fit.squares / fit.freedom / max(fits[0].squares / fits[0].freedom, ROUNDING**2)
            tails = (tail(fit.freedom, fits[0].freedom, ratio) for tail in (special.fdtrc, special.fdtr))
            if 2 * float(min(tails)) < LEVEL:
                return place
    return None


def _sd_beside(rest: SeedLosses, row: SeedLosses, blocks: bool) -> float:
    """Standard deviation of a row, with all of its runs, given the rest of its table."""
    known, whole = TwoWayFit(rest, blocks), TwoWayFit({**rest, **row}, blocks)
    return math.sqrt((whole.squares - known.squares) / (whole.freedom - known.freedom))
