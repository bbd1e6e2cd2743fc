"""Scores of tasks, compared item by item and seed by seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import scipy  # loads its submodules on first use

from reports.judge.findings.judging import difference_claim, differences, score_test
from reports.judge.reading.collected import Collected
from reports.judge.statistics.crossed import Crossed, crossed
from reports.judge.statistics.estimates import Failures, Floats
from reports.judge.statistics.simultaneous import Evidence
from reports.judge.verdicts import ALPHA, Verdict, verdict_of
from store.documents import JsonObject, LedgerTest

# Both arms answered the same items, so the difficulty of an item cancels in the difference. Items from one document
# count as one, since they are not independent. Other items would give another difference, and so would other seeds:
# with two seeds or more both are crossed random effects (`statistics.crossed`), and p-value and interval cover both. A
# single seed has an interval over items alone, a bootstrap (BCa, Efron 1987), and no p.
#
# The tests of all arms, tasks and metrics share 5 %, corrected by Holm like losses, and intervals agree with it: with
# enough tasks some arm always looks better. The ledger keeps them, so that tasks tested one by one are corrected like
# tasks tested at once. Tasks within groups, which figures do not draw, share another 5 %.

RESAMPLES = 1999
SEED = 0
BATCH_ELEMENTS = 1_000_000
"""Most resampled values held in memory at a time."""


@dataclass(frozen=True)
class ItemDifference:
    """One metric of one task, arm − baseline. If there is no difference, `difference` is None and `reason` says why.

    `low` and `high` are None with fewer than two independent items. `p` is None then too, and with fewer than two
    seeds, if all seeds differ by the same amount, and while it is withheld. `by_seed` has one difference for each of
    `seeds`. `test` is the ledger's record.
    """

    task: str
    metric: str
    higher_is_better: bool | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    items: int = 0
    seeds: tuple[int, ...] = ()
    by_seed: tuple[float, ...] = ()
    reason: str | None = None
    test: LedgerTest | None = None

    def verdict(self, failures: Failures) -> Verdict:
        """The verdict on a score that is tested and known to be better when high or low. Failed seeds have no score, so
        an arm that has some is not better, and none is worse than a baseline that has some."""
        assert self.difference is not None
        assert self.p is not None
        lost = -self.difference if self.higher_is_better else self.difference
        barred = failures.baseline if lost > 0 else failures.arm
        return "inconclusive" if barred else verdict_of(lost, self.p)

    def document(self) -> JsonObject:
        """JSON form, for `ablate run --json`."""
        return {
            "difference": self.difference,
            "interval": None if self.low is None else [self.low, self.high],
            "p": self.p,
            "items": self.items,
            "seeds": list(self.seeds),
            "reason": self.reason,
        }


Key = tuple[str, str, str]
"""Arm, task and metric."""


def item_differences(
    data: Collected, levels: Mapping[str, float], withheld: Collection[str] = ()
) -> dict[str, tuple[ItemDifference, ...]]:
    """Differences by arm. levels: α of an arm's look; 0.05 if there is one look. withheld: arms that are not judged
    yet, though they count."""
    arms = [arm for arm in data.study.arms if arm.name != data.study.baseline]
    sampled, summed = set(data.items["task"]), set(data.items.select("task", "metric").unique().iter_rows())
    # Scores that are sums over items. A score of a task without samples is included, with a reason.
    metrics = data.scores.select("task", "metric").unique(maintain_order=True).iter_rows()
    compared = [pair for pair in metrics if pair in summed or pair[0] not in sampled]
    found: dict[Key, ItemDifference] = {}
    evidence: dict[Key, Evidence] = {}
    for arm, (task, metric) in itertools.product(arms, compared):
        known, table = _compare(data, arm.name, task, metric)
        if known is None:
            continue
        key = arm.name, task, metric
        if table is not None and arm.name not in withheld:
            evidence[key] = _evidence(table, levels[arm.name])
        score, p = f"{task} {metric}, {known.items} items", evidence[key].p if key in evidence else None
        test = score_test(data.study, arm, score, known.seeds, p, grouped=task in data.grouped)
        found[key] = replace(known, test=test)
    shown = {key: each for key, each in found.items() if key[1] not in data.grouped}
    inner = {key: each for key, each in found.items() if key[1] in data.grouped}
    for family in filter(None, (shown, inner)):
        found |= _corrected(data, family, evidence)
    return {arm.name: tuple(value for (of, _, _), value in found.items() if of == arm.name) for arm in arms}


def _corrected(
    data: Collected, family: Mapping[Key, ItemDifference], evidence: Mapping[Key, Evidence]
) -> dict[Key, ItemDifference]:
    """Differences that share 5 %, corrected for each other and for earlier judgements."""
    claims = {key: difference_claim(each.test) for key, each in family.items() if each.test is not None}
    known = {claims[key]: evidence[key] for key in claims if key in evidence}
    tests = [each.test for each in family.values() if each.test is not None]
    standings = differences(tests, known, data.ledger, elsewhere=data.elsewhere)
    found = {}
    for key, each in family.items():
        standing = standings.get(claims[key])
        if standing is not None and standing.p is not None and math.isfinite(standing.interval.half_width):
            found[key] = replace(each, p=standing.p, low=standing.interval.low, high=standing.interval.high)
    return found


def _evidence(table: Crossed, level: float) -> Evidence:
    looked = level / ALPHA

    def interval(alpha: float) -> tuple[float, float]:
        found = table.interval(alpha * looked)
        return found.low, found.high

    return Evidence(table.mean, min(1.0, table.p() / looked), interval)


def unpaired(items: Mapping[str, tuple[ItemDifference, ...]]) -> Iterator[str]:
    """Warnings for scores that could not be compared."""
    for arm, values in items.items():
        for value in values:
            if value.reason is not None:
                yield f"{arm}: {value.task} {value.metric} is not compared item by item: {value.reason}."


def _compare(data: Collected, arm: str, task: str, metric: str) -> tuple[ItemDifference | None, Crossed | None]:
    """The difference, and its table over seeds and items if that can be judged.

    None if no seed was evaluated in both arms, which other warnings cover.
    """
    scores = data.scores.filter(task=task, metric=metric)
    own, theirs = (scores.filter(arm=name) for name in (arm, data.study.baseline))
    seeds = sorted(set(own["seed"]) & set(theirs["seed"]))
    if not seeds:
        return None, None
    empty = ItemDifference(task, metric, own["higher_is_better"][0])
    samples = data.items.filter(pl.col("seed").is_in(seeds), task=task, metric=metric)
    pairs, reason = _paired(samples, arm, data.study.baseline, seeds)
    reason = reason or _not_a_mean(pairs, own.join(theirs, on="seed", suffix="_base"))
    if reason is not None:
        return replace(empty, reason=reason), None
    return _difference(replace(empty, seeds=tuple(seeds)), pairs)


def _paired(samples: pl.DataFrame, arm: str, baseline: str, seeds: list[int]) -> tuple[pl.DataFrame, str | None]:
    """Rows of (seed, item) with the values of both arms, and the reason why they cannot be compared, or None."""
    own, theirs = samples.filter(arm=arm), samples.filter(arm=baseline)
    pairs = own.join(theirs, on=["seed", "item", "weight"], suffix="_base")
    counts = {frame.height for frame in (own, theirs, pairs)} | {len(seeds) * pairs["item"].n_unique()}
    if set(own["seed"]) != set(seeds) or set(theirs["seed"]) != set(seeds):
        return pairs, "some of its samples are not in the store"
    if own["value"].null_count() or theirs["value"].null_count():
        return pairs, "some items have no individual score"
    if len(counts) > 1:
        return pairs, "the items are not the same in every run"
    return pairs, None


def _not_a_mean(pairs: pl.DataFrame, scores: pl.DataFrame) -> str | None:
    """Reason why stored scores are not averages over items; None if the averages reproduce them."""
    for side in ("", "_base"):
        ratio = pl.col(f"value{side}").sum() / pl.col("weight").sum()
        both = scores.select("seed", f"value{side}").join(pairs.group_by("seed").agg(mean=ratio), on="seed")
        stored, mean = both[f"value{side}"].fill_null(float("nan")).to_numpy(), both["mean"].to_numpy()
        if not np.allclose(stored, mean, rtol=1e-6, atol=1e-9):
            return "the score is not an average over items"
    return None


def _difference(empty: ItemDifference, pairs: pl.DataFrame) -> tuple[ItemDifference, Crossed | None]:
    ratio = (pl.col("value") - pl.col("value_base")).sum() / pl.col("weight").sum()
    by_seed = tuple(pairs.group_by("seed").agg(difference=ratio).sort("seed")["difference"])
    cells, weights = _cells(pairs)
    mean = float((cells * weights).sum() / weights.sum() / len(by_seed))
    known = replace(empty, difference=mean, items=len(weights), by_seed=by_seed)
    if len(weights) < 2:
        return known, None
    shares = (pl.col(side).is_between(0, pl.col("weight")).all() for side in ("value", "value_base"))
    # Scores of 0 or 1, or shares of 1, differ by at most one. If no item of n differs, at most 1 − α^(1/n) of all items
    # do, at level α, and the difference is at most that large.
    if not cells.any() and all(pairs.select(*shares).row(0)):
        differing = 1 - ALPHA ** (1 / len(weights))
        return replace(known, low=-differing, high=differing), None
    if np.ptp(by_seed) == 0:  # one seed, or several that are not independent
        low, high = _over_items(cells.mean(axis=0) * weights, weights)
        return replace(known, low=low, high=high), None
    table = crossed(cells, weights)
    interval = table.interval()
    return replace(known, low=interval.low, high=interval.high), table


def _cells(pairs: pl.DataFrame) -> tuple[Floats, Floats]:
    """Differences (seeds, independent items), each a mean over the weights of its items, and the weights (items,)."""
    sums = (pl.col("value") - pl.col("value_base")).sum().alias("sum"), pl.col("weight").sum()
    rows = pairs.group_by("seed", "cluster").agg(*sums).sort("seed", "cluster")
    seeds = rows["seed"].n_unique()
    sums_of, weights = (rows[name].to_numpy().reshape(seeds, -1) for name in ("sum", "weight"))
    return sums_of / weights, weights[0]


def _over_items(sums: Floats, weights: Floats) -> tuple[float, float]:
    """Bootstrap interval over items of Σ sums / Σ weights; a single point if all items give the same ratio."""
    each = sums / weights
    if np.ptp(each) == 0:
        return (float(each[0]),) * 2

    def ratio(a: Floats, w: Floats, axis: int = -1) -> Floats:
        return np.asarray(a.sum(axis=axis) / w.sum(axis=axis))

    found = scipy.stats.bootstrap(
        (sums, weights),
        ratio,
        n_resamples=RESAMPLES,
        batch=max(1, BATCH_ELEMENTS // len(sums)),
        vectorized=True,
        paired=True,
        confidence_level=1 - ALPHA,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)
