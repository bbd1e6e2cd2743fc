"""Does a small scale predict a large one? Agreement of the order of arms at two sizes, with intervals. Pure.

    decision accuracy   share of the pairs of arms that both sizes put in the same order (DataDecide, arXiv:2504.11393)
    Kendall's τ         (concordant − discordant) / pairs
    Spearman's ρ        correlation of the ranks

All use mean losses over the seeds of each size. Intervals are percentiles of a bootstrap over arms and, within each
size, over seeds, which all arms share; two copies of one arm are not a pair. They hold for other arms of the same kind
with as many seeds. Resampling seeds as well as arms counts seed noise twice, so most intervals are conservative (93 to
100 % coverage with 8 to 16 arms of 3 seeds). Resampling arms alone covers 70 % if hardly a pair disagrees.

A pair whose arms differ by less than the noise is a coin toss at any size. So accuracy is also given over the pairs
that are at least a gap apart at the large size, with a ceiling: the accuracy that seed noise would allow if the small
size had exactly the large one's differences. It is the mean over those pairs of Φ(|difference| / √(2σ²/n)), with σ the
noise of a run at the small size and n its seeds.

`predict` compares the order at each smaller size of a ladder with that at the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl
import scipy  # loads its submodules on first use
from numpy.typing import ArrayLike, NDArray

from reports.judge.statistics.estimates import Floats, Interval
from reports.judge.verdicts import ALPHA

FEWEST_ARMS = 4
RESAMPLES = 2_000
SEED = 0


@dataclass(frozen=True)
class OrderPrediction:
    """Agreement between the order of `arms` at a small size and at a large one."""

    arms: int
    accuracy: Interval
    kendall: Interval
    spearman: Interval


def prediction(small: ArrayLike, large: ArrayLike, alpha: float = ALPHA) -> OrderPrediction:
    """Agreement from losses (arms, seeds) of the same arms in the same order. Sizes may have different numbers of
    seeds.

    Raises ValueError with fewer than four arms, or if the sizes have different numbers of arms.
    """
    sizes = [np.asarray(losses, dtype=np.float64) for losses in (small, large)]
    arms = len(sizes[0])
    if arms < FEWEST_ARMS or len(sizes[1]) != arms:
        raise ValueError(f"needs the same {FEWEST_ARMS} arms or more at both sizes, not {arms} and {len(sizes[1])}")
    draw = np.random.default_rng(SEED)
    chosen = draw.integers(0, arms, (RESAMPLES, arms))
    means = []  # (resamples, arms): means of the chosen arms over resampled seeds, the same seeds for all arms
    # bootstrap of seed means as multinomial weights, then of arms: (resamples, seeds) @ (seeds, arms)
    for losses in sizes:
        seeds = losses.shape[1]
        weights = draw.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
        means.append(np.asarray(np.take_along_axis(weights @ losses.T, chosen, axis=1)))
    observed = [losses.mean(axis=1)[None] for losses in sizes]
    everyone = np.arange(arms)[None]
    tau = _kendall(observed[0], observed[1], everyone), _kendall(means[0], means[1], chosen)
    rho = _spearman(observed[0], observed[1]), _spearman(means[0], means[1])
    return OrderPrediction(
        arms,
        # a share of concordant pairs is (τ + 1) / 2
        _interval((tau[0] + 1) / 2, (tau[1] + 1) / 2, alpha),
        _interval(*tau, alpha),
        _interval(*rho, alpha),
    )


@dataclass(frozen=True)
class AccuracyFrom:
    """Accuracy over the `pairs` that are at least `gap` apart at the large size. `ceiling` is None with one seed, or
    without noise."""

    gap: float
    pairs: int
    accuracy: float
    ceiling: float | None


def accuracy_by_gap(small: ArrayLike, large: ArrayLike) -> tuple[AccuracyFrom, ...]:
    """Accuracy over pairs of at least each gap that occurs, the smallest gap first; losses as in `prediction`."""
    sizes = [np.asarray(losses, dtype=np.float64) for losses in (small, large)]
    here, there = (means[:, None] - means[None, :] for means in (losses.mean(axis=1) for losses in sizes))
    pairs = np.triu_indices(len(here), 1)
    gaps = np.abs(there[pairs])
    # 1 if both sizes agree on a pair's order, 0 if not, ½ for a tie
    right = (1 + np.sign(here[pairs]) * np.sign(there[pairs])) / 2
    error = _error_of_a_difference(sizes[0])
    # P(noise of the small size keeps a pair's true order)
    ceilings = None if error is None else scipy.special.ndtr(gaps / error)
    found = []
    for gap in np.unique(gaps):
        apart = gaps >= gap
        ceiling = None if ceilings is None else float(ceilings[apart].mean())
        found.append(AccuracyFrom(float(gap), int(apart.sum()), float(right[apart].mean()), ceiling))
    return tuple(found)


def _error_of_a_difference(losses: Floats) -> float | None:
    """Standard error of the difference of two arms over shared seeds, from the residual after arm and seed effects;
    None with one seed, or without noise."""
    arms, seeds = losses.shape
    if seeds < 2:
        return None
    rest = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0) + losses.mean()
    variance = float((rest**2).sum()) / ((arms - 1) * (seeds - 1))
    return float(np.sqrt(2 * variance / seeds)) or None


def repeatability(losses: ArrayLike) -> float | None:
    """Share of the pairs of arms that two seeds of one size put in the same order, averaged over all pairs of seeds: a
    measure of the noise of single seeds. losses: (arms, seeds). None with one seed."""
    table = np.asarray(losses, dtype=np.float64)
    everyone = np.arange(len(table))[None]
    found = [_kendall(one[None], other[None], everyone) for one, other in combinations(table.T, 2)]
    return float((np.mean(found) + 1) / 2) if found else None


def _kendall(small: Floats, large: Floats, arms: NDArray[np.int_]) -> Floats:
    """τ of each row over its pairs of different arms. A tied pair counts as half right."""

    def order(values: Floats) -> Floats:
        return np.sign(values[:, :, None] - values[:, None, :])

    # (rows, arms, arms): two copies of one arm are no pair
    pairs = arms[:, :, None] != arms[:, None, :]
    agreement = np.where(pairs, order(small) * order(large), 0.0).sum(axis=(1, 2))
    return np.asarray(agreement / np.maximum(pairs.sum(axis=(1, 2)), 1))


def _spearman(small: Floats, large: Floats) -> Floats:
    """ρ of each row; 0 if all values of one size are equal."""
    ranks = [scipy.stats.rankdata(values, axis=1) for values in (small, large)]
    centred = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    products = (centred[0] * centred[1]).sum(axis=1)
    norms = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    return np.asarray(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0))


def _interval(observed: Floats, resampled: Floats, alpha: float) -> Interval:
    low, high = np.quantile(resampled, [alpha / 2, 1 - alpha / 2])
    return Interval(float(observed[0]), float(low), float(high))


@dataclass(frozen=True)
class SizeOrder:
    """The arms at one size: each arm's mean loss over its seeds, in the order of the study."""

    size: str
    flops: float
    """FLOPs of one run of the first arm."""
    losses: tuple[float, ...]
    repeatability: float | None
    """Share of pairs that two seeds of this size put in the same order; None with one seed."""


@dataclass(frozen=True)
class SizePredictions:
    """Accuracy with which each smaller size predicts the order at the last. `left_out`: arms with a failed or missing
    run."""

    arms: tuple[str, ...]
    left_out: tuple[str, ...]
    sizes: tuple[SizeOrder, ...]
    predictions: tuple[OrderPrediction, ...]
    """Prediction by each size but the last."""
    by_gap: tuple[tuple[AccuracyFrom, ...], ...]
    """Accuracy of each of these sizes, by the distance of arms at the last size."""


def predict(runs: pl.DataFrame) -> SizePredictions | None:
    """Predictions from one row per run: rung, axis, arm, seed, status, flops, loss. None with one size, or with too few
    arms that trained at every size. Rungs of length are ignored."""
    runs = runs.filter(pl.col("axis").is_null() | (pl.col("axis") == "size"))
    arms: list[str] = runs["arm"].unique(maintain_order=True).to_list()
    sizes: list[str] = runs["rung"].unique(maintain_order=True).to_list()
    gaps = set(runs.filter(pl.col("status") != "finished")["arm"])
    kept = [arm for arm in arms if arm not in gaps]
    if len(sizes) < 2 or len(kept) < FEWEST_ARMS:
        return None
    tables = []  # of each size (arms, seeds), over the seeds that all these arms share
    for size in sizes:
        here = [runs.filter(rung=size, arm=arm) for arm in kept]
        shared = set.intersection(*(set(each["seed"]) for each in here))
        losses = [each.filter(pl.col("seed").is_in(sorted(shared))).sort("seed")["loss"].to_list() for each in here]
        tables.append(pl.DataFrame(losses, orient="row").to_numpy())
    return SizePredictions(
        arms=tuple(kept),
        left_out=tuple(arm for arm in arms if arm in gaps),
        sizes=tuple(
            SizeOrder(
                size,
                runs.filter(rung=size, arm=arms[0])["flops"][0],
                tuple(table.mean(axis=1).tolist()),
                repeatability(table),
            )
            for size, table in zip(sizes, tables, strict=True)
        ),
        predictions=tuple(prediction(table, tables[-1]) for table in tables[:-1]),
        by_gap=tuple(accuracy_by_gap(table, tables[-1]) for table in tables[:-1]),
    )
