"""Scores of an arm against the baseline's, item by item. Pure.

Both answered the same items, so what makes an item easy or hard cancels in the difference. The items' scores are
averaged over the seeds that both have; items from one document count as one, since they are not independent. The 95 %
interval is a bootstrap over items (BCa, Efron 1987): it says how the difference would scatter over other items, with
the models that were trained. Other seeds would scatter too, so a difference has two p-values, of a permutation of the
items' signs and of a paired t-test over seeds, and the larger one counts: it is small only where both other items and
other seeds would show the difference. Holm's correction is over the arms within a task's metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy import stats

from ablate.store.documents import JsonObject
from reports.reading.collected import Collected
from reports.statistics.estimates import ALPHA, Floats, holm_by_name, paired_p

RESAMPLES = 1999
SEED = 0
BATCH_ELEMENTS = 1_000_000
"""Resampled values held at a time."""


@dataclass(frozen=True)
class ItemDifference:
    """One metric of one task, arm − baseline. `reason` says why there is no difference, `difference` is None then.

    `low` and `high` are None with fewer than two independent items, `p` also with fewer than two seeds or where all
    seeds differ by the same. `by_seed` has one difference for each of `seeds`.
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

    def document(self) -> JsonObject:
        """As `ablate run --json` prints it."""
        return {
            "difference": self.difference,
            "interval": None if self.low is None else [self.low, self.high],
            "p": self.p,
            "items": self.items,
            "seeds": list(self.seeds),
            "reason": self.reason,
        }


def item_differences(data: Collected, levels: Mapping[str, float]) -> dict[str, tuple[ItemDifference, ...]]:
    """By arm. `levels`: α of the look at which an arm stands, 0.05 where there is one look."""
    baseline = data.study.baseline
    arms = [arm.name for arm in data.study.arms if arm.name != baseline]
    found: dict[str, list[ItemDifference]] = {arm: [] for arm in arms}
    for task, metric in _metrics(data):
        here = {arm: _compare(data, arm, task, metric, levels[arm]) for arm in arms}
        corrected = holm_by_name({arm: value.p for arm, value in here.items() if value is not None})
        for arm, value in here.items():
            if value is not None:
                found[arm].append(replace(value, p=corrected[arm]))
    return {arm: tuple(values) for arm, values in found.items()}


def unpaired(items: Mapping[str, tuple[ItemDifference, ...]]) -> Iterator[str]:
    """A warning for each score that could not be compared."""
    for arm, values in items.items():
        for value in values:
            if value.reason is not None:
                yield f"{arm}: {value.task} {value.metric} is not compared item by item: {value.reason}."


def _metrics(data: Collected) -> list[tuple[str, str]]:
    """The scores that are sums over items; one of a task without any samples is among them, and will say so."""
    pairs = data.scores.select("task", "metric").unique(maintain_order=True)
    sampled = set(data.items["task"])
    known = set(data.items.select("task", "metric").unique().iter_rows())
    return [pair for pair in pairs.iter_rows() if pair in known or pair[0] not in sampled]


def _compare(data: Collected, arm: str, task: str, metric: str, alpha: float) -> ItemDifference | None:
    """None where no seed was evaluated in both, for which other warnings stand."""
    scores = data.scores.filter(task=task, metric=metric)
    own, theirs = (scores.filter(arm=name) for name in (arm, data.study.baseline))
    seeds = sorted(set(own["seed"]) & set(theirs["seed"]))
    if not seeds:
        return None
    empty = ItemDifference(task, metric, own["higher_is_better"][0])
    samples = data.items.filter(pl.col("seed").is_in(seeds), task=task, metric=metric)
    pairs, reason = _paired(samples, arm, data.study.baseline, seeds)
    reason = reason or _not_a_mean(pairs, own.join(theirs, on="seed", suffix="_base"))
    if reason is not None:
        return replace(empty, reason=reason)
    return _difference(replace(empty, seeds=tuple(seeds)), pairs, alpha)


def _paired(samples: pl.DataFrame, arm: str, baseline: str, seeds: list[int]) -> tuple[pl.DataFrame, str | None]:
    """Rows of (seed, item) with both values, or why there are none."""
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
    """Some scores are more than sums over items: the stored ones must come out."""
    for side in ("", "_base"):
        ratio = pl.col(f"value{side}").sum() / pl.col("weight").sum()
        both = scores.select("seed", f"value{side}").join(pairs.group_by("seed").agg(mean=ratio), on="seed")
        stored, mean = both[f"value{side}"].fill_null(float("nan")).to_numpy(), both["mean"].to_numpy()
        if not np.allclose(stored, mean, rtol=1e-6, atol=1e-9):
            return "the score is not an average over items"
    return None


def _difference(empty: ItemDifference, pairs: pl.DataFrame, alpha: float) -> ItemDifference:
    totals = [pl.col(name).sum() for name in ("value", "value_base", "weight")]
    clusters = pairs.group_by("cluster", maintain_order=True).agg(totals)
    own, theirs, weight = (clusters[name].to_numpy() for name in ("value", "value_base", "weight"))
    by_seed = _by_seed(pairs)
    known = replace(
        empty,
        difference=float((own - theirs).sum() / weight.sum()),
        items=len(own),
        by_seed=by_seed,
    )
    if len(own) < 2:
        return known
    low, high = _interval(own, theirs, weight, alpha)
    p = _p(own, theirs, by_seed)
    return replace(known, low=low, high=high, p=None if p is None else min(1.0, p * ALPHA / alpha))


def _by_seed(pairs: pl.DataFrame) -> tuple[float, ...]:
    ratio = (pl.col("value") - pl.col("value_base")).sum() / pl.col("weight").sum()
    return tuple(pairs.group_by("seed").agg(difference=ratio).sort("seed")["difference"])


def _interval(own: Floats, theirs: Floats, weight: Floats, alpha: float) -> tuple[float, float]:
    """Bootstrap over items of Σ (own − theirs) / Σ weight; a point where all items give the same."""
    if np.ptp((own - theirs) / weight) == 0:
        return (float((own - theirs)[0] / weight[0]),) * 2

    def ratio(a: Floats, b: Floats, w: Floats, axis: int = -1) -> Floats:
        return np.asarray((a - b).sum(axis=axis) / w.sum(axis=axis))

    found = stats.bootstrap(
        (own, theirs, weight),
        ratio,
        n_resamples=RESAMPLES,
        batch=_batch(own),
        vectorized=True,
        paired=True,
        confidence_level=1 - alpha,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def _p(own: Floats, theirs: Floats, by_seed: tuple[float, ...]) -> float | None:
    """The larger p of the two tests; None where the seeds' one cannot be had."""
    if len(by_seed) < 2 or np.ptp(by_seed) == 0:
        return None
    items = stats.permutation_test(
        (own - theirs,),
        np.sum,
        permutation_type="samples",
        n_resamples=RESAMPLES,
        batch=_batch(own),
        vectorized=True,
        rng=np.random.default_rng(SEED),
    ).pvalue
    return max(float(items), float(paired_p(by_seed)))


def _batch(values: Floats) -> int:
    return max(1, BATCH_ELEMENTS // len(values))
