"""Two arms compared in loss and in costs, and the verdict on the first. Pure.

Costs are training and decoding speed measured in alternation, peak memory and cache bytes. Speeds of two arms are
compared if at least three processes measured both. A measurement that does not count yields a reason instead of a
number.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median
from typing import TypeVar

import polars as pl

from reports.judge.findings.judging import Pair
from reports.judge.noise.difference import Difference
from reports.judge.noise.power import FUTILE
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate, Failures, Interval, judge
from reports.judge.verdicts import ALPHA, Verdict
from store.documents import CostPoint, CostsDocument, LedgerTest, StudyArm
from store.documents.measure import CROWDED, FEWEST_PROCESSES, Work
from store.documents.study import UNJUDGED

TIMED: tuple[Work, ...] = ("training", "decoding")
MEMORY = "memory"
ON_GPU = "cuda allocated"
"""Source of peaks that are of tensors alone. Others are of the whole process."""
PROCESS = 64 * 2**20
"""Difference in bytes below which peaks of processes say nothing of models: they include the interpreter and its
libraries, some 400 MiB, which differ by as much as 34 MiB between arms of 30 k parameters."""
FEWEST_RUNS = 2
"""Fewest seeds finished in both arms for a comparison of peak memory."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class ArmCosts:
    """Ratios of an arm to another: tokens per second in `training` and `decoding`, peak `memory`, and bytes of the KV
    cache at `kv_context` tokens, the longest known; `kv_context` is None if all lengths have one ratio.

    The interval of a measured ratio excludes 1 where the arms differ, with all arms and kinds of cost judged together.
    unmeasured: reason why speeds are unknown; None if they are known or not asked for. untimed: by kind of work, which
    of the two arms cannot be timed at it, and why: measuring again would not help.
    """

    training: Estimate | None = None
    decoding: Estimate | None = None
    memory: Estimate | None = None
    kv_ratio: float | None = None
    kv_context: int | None = None
    unmeasured: str | None = None
    untimed: Mapping[Work, tuple[str, str]] = field(default_factory=dict)


NO_COSTS = ArmCosts()


@dataclass(frozen=True)
class StudyCosts:
    """pairs: costs of each arm relative to its comparison arm. speeds: tokens per second by arm and work. reason: why
    some speeds are unknown."""

    pairs: Mapping[Pair, ArmCosts] = field(default_factory=dict)
    speeds: Mapping[str, Mapping[Work, float]] = field(default_factory=dict)
    reason: str | None = None


def study_costs(data: Collected) -> StudyCosts:
    """Costs of every pair that the study compares, and the speed of every arm measured."""
    pairs = {(arm.name, base.name): (arm, base) for arm, base in data.study.pairs}
    ratios = judged_ratios(data, {pair: {pair[0]: 1.0, pair[1]: -1.0} for pair in pairs})
    # encoders do not decode
    decode = [pair for pair, arms in pairs.items() if all(arm.kv_bytes_per_token is not None for arm in arms)]
    asked = {*((pair, "training") for pair in pairs), *((pair, "decoding") for pair in decode)}
    # reasons why an arm cannot be timed at a kind of work, where arms are judged by it
    cannot: dict[tuple[str, Work], str] = {}
    for process in data.costs.processes if data.costs is not None else ():
        for work, point in ((work, process.judged(work)) for work in TIMED):
            cannot |= {} if point is None else {(arm, work): why for arm, why in point.reasons.items()}
    excused: dict[Pair, dict[Work, tuple[str, str]]] = {
        pair: {work: why for work in TIMED if (pair, work) in asked and (why := _why(cannot, pair, work))}
        for pair in pairs
    }
    missing = {pair for pair, work in asked if (pair, work) not in ratios and work not in excused[pair]}
    known = speeds(data)
    silent = [arm for arm in data.study.arms if arm.name not in known.keys() | {name for name, _ in cannot}]
    reason = unmeasured(data) if missing or silent else None
    found = {
        pair: ArmCosts(
            training=ratios.get((pair, "training")),
            decoding=ratios.get((pair, "decoding")),
            memory=ratios.get((pair, MEMORY)),
            kv_ratio=kv[0],
            kv_context=kv[1],
            unmeasured=reason if pair in missing else None,
            untimed=excused[pair],
        )
        for pair, (arm, base) in pairs.items()
        for kv in [cache_ratio(arm, base)]
    }
    return StudyCosts(found, known, reason)


def _why(cannot: Mapping[tuple[str, Work], str], pair: Pair, work: Work) -> tuple[str, str] | None:
    """The first arm of the pair that cannot be timed, and why."""
    return next(((arm, cannot[arm, work]) for arm in pair if (arm, work) in cannot), None)


def judged_ratios(data: Collected, contrasts: Mapping[Name, Mapping[str, float]]) -> dict[tuple[Name, str], Estimate]:
    """Ratios of speed and memory for each contrast, as far as known. contrasts: weights of arms that sum to 0.

    All ratios are corrected together.
    """
    logs: dict[tuple[Name, str], Sequence[float]] = {}
    for name, weights in contrasts.items():
        for work in TIMED:
            values = [] if data.costs is None else list(_log_speeds(data.costs, work, weights))
            if len(values) >= FEWEST_PROCESSES:
                logs[name, work] = values
        values = _log_memory(data.runs, weights)
        if len(values) >= FEWEST_RUNS:
            logs[name, MEMORY] = values
    return judge(logs)


def _log_speeds(costs: CostsDocument, work: Work, weights: Mapping[str, float]) -> Iterator[float]:
    """ln of a contrast of tokens per second in each process that counts, relative to the last arm."""
    base = list(weights)[-1]
    for process in costs.processes:
        point = process.judged(work)
        logs = {arm: point.log_ratio(arm, base) for arm in weights} if point is not None else {base: None}
        known = [weights[arm] * log for arm, log in logs.items() if log is not None]
        if len(known) == len(logs):
            yield -sum(known)


def _log_memory(runs: pl.DataFrame, weights: Mapping[str, float]) -> list[float]:
    """ln of a contrast's peak memory for each seed that finished in all its arms; none if whole processes were
    measured, and differ by less than `PROCESS`."""
    finished = runs.filter(pl.col("arm").is_in(list(weights)), status="finished").drop_nulls("peak_memory_bytes")
    of_models = (finished["peak_memory_source"] == ON_GPU).all()
    means = finished.group_by("arm").agg(pl.col("peak_memory_bytes").mean())["peak_memory_bytes"].to_list()
    if not of_models and max(means, default=0.0) - min(means, default=0.0) < PROCESS:
        return []
    weight = pl.col("arm").replace_strict(weights, return_dtype=pl.Float64)
    by_seed = finished.group_by("seed", maintain_order=True).agg(
        (weight * pl.col("peak_memory_bytes").cast(pl.Float64).log()).sum().alias("log"), pl.len()
    )
    return by_seed.filter(len=len(weights))["log"].to_list()


def speeds(data: Collected) -> dict[str, dict[Work, float]]:
    """Tokens per second of each arm at the setting by which arms are judged: the geometric mean over processes that
    count."""
    if data.costs is None:
        return {}
    found: dict[str, dict[Work, float]] = {}
    for work in TIMED:
        points = [point for process in data.costs.processes if (point := process.judged(work)) is not None]
        known = [speeds_at(point, data.study.baseline) for point in points]
        for arm in data.study.arms:
            own = [each[arm.name] for each in known if arm.name in each]
            if len(own) >= FEWEST_PROCESSES:
                found.setdefault(arm.name, {})[work] = geometric_mean(own)
    return found


def speeds_at(point: CostPoint, baseline: str) -> dict[str, float]:
    """Tokens per second of each arm in one process: the speed of the baseline (or else the first arm) times the ratio
    in rounds that both have, since the machine may be faster in some rounds than in others."""
    base = baseline if baseline in point.seconds else next(iter(point.seconds), baseline)
    known = [seconds for seconds in point.counted(base) if seconds is not None]
    logs = {arm: point.log_ratio(arm, base, fewest=1) for arm in point.seconds}
    return {arm: 1 / (median(known) * math.exp(log)) for arm, log in logs.items() if log is not None and known}


def unmeasured(data: Collected) -> str | None:
    """Reason why speeds are unknown; None if the study asks for none."""
    study = data.study
    if study.measure is None or study.scale in UNJUDGED or len(study.arms) < 2:
        return None
    if (data.runs["devices"].fill_null(1) > 1).any():
        return "each run used several devices"
    if study.costs is None:
        return "this study was recorded by a version that did not time arms against each other"
    if data.costs is None:
        return "the measurement was interrupted or has not begun"
    points = [point for process in data.costs.processes for point in process.points]
    shares = [share or 0.0 for point in points for of in point.waited.values() for share in of]
    if max(shares, default=0.0) < CROWDED:
        return f"at least {FEWEST_PROCESSES} complete processes are needed, {len(data.costs.processes)} were measured"
    return f"other programs used the processor for {100 * fmean(shares):.0f} % of the time"


def cache_ratio(arm: StudyArm, base: StudyArm) -> tuple[float | None, int | None]:
    """Ratio of cache bytes, and the context at which it holds (None: at every context), since windows and states stop
    growing. (None, None) without a cache."""
    kv, base_kv = arm.kv_bytes_per_token, base.kv_bytes_per_token
    if kv is None or not base_kv:
        return None, None
    sizes, base_sizes = ({each.context: each.bytes for each in of.cache_bytes} for of in (arm, base))
    longest = max(sizes.keys() & base_sizes.keys(), default=None)
    if longest is None or not base_sizes[longest]:
        return kv / base_kv, None
    ratio = sizes[longest] / base_sizes[longest]
    return (kv / base_kv, None) if math.isclose(ratio, kv / base_kv, rel_tol=0.01) else (ratio, longest)


SHOWN = 4
"""Most decimals shown for losses in nats."""


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline. `difference` is arm − baseline in nats per token: of the means of all runs that
    trained, with one value for each of `seeds`, which trained in both. `gap` is the difference with the noise by which
    it is tested, None if it is not tested. `failures` counts the failed seeds.

    `p_holm` belongs to the difference, `p_equivalence` to the tests against the study's margin, both corrected for all
    tests of the question, looks included. They are None with fewer than two pairs, if no pair differs, and if the
    verdict is withheld. The interval of `difference` lies on one side of zero where `p_holm` is significant. A
    `repeated` test has neither. `tuning_room` is how much the noise of tuning widens the interval. `alpha` is the level
    of the look. `detectable` is the smallest true difference found with 80 % probability, with the uncertainty of so
    few seeds. `seeds_needed` more seeds would settle the pair with that probability; None if no number would, or if the
    study adds no seeds by plan. `test` is the ledger's record. If the best setting of either arm lies beyond those
    tried, the interval is unbounded on one side, `tuning_room` is infinite, and `detectable` and `seeds_needed` are
    None. `chance` is the probability that the looks still planned would settle the pair; None if none is planned, or
    if it is unknown.

    `costs` are ratios of the arm to the baseline.
    """

    difference: Estimate | None
    gap: Difference | None
    failures: Failures
    seeds: tuple[int, ...]
    alpha: float
    test: LedgerTest | None = None
    p_holm: float | None = None
    p_equivalence: float | None = None
    detectable: Interval | None = None
    seeds_needed: int | None = None
    chance: float | None = None
    repeated: bool = False
    tuning_room: float = 0.0
    costs: ArmCosts = NO_COSTS

    @property
    def shows_difference(self) -> bool:
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def rounds_to_zero(self) -> bool:
        """Whether all differences round to zero at the decimals shown, so that the interval reads 0.0000 to 0.0000."""
        return self.difference is not None and not any(round(each, SHOWN) for each in self.difference.values)

    @property
    def waits_for_rates(self) -> bool:
        """Whether the answer depends on settings beyond those tried, so that no number of seeds would settle it."""
        if self.difference is None:
            return False
        rises = self.difference.mean > 0
        if self.gap is not None:
            return not (self.gap.own if rises else self.gap.other).is_bounded
        end = self.difference.low if rises else self.difference.high
        return end is not None and math.isinf(end) and not self.failures.any

    @property
    def is_futile(self) -> bool:
        """Whether the seeds still planned would hardly settle it."""
        return self.chance is not None and self.chance < FUTILE

    @property
    def is_barred(self) -> bool:
        """Whether a failed seed bars the verdict that the difference points to, however many seeds are added."""
        if self.difference is None:
            return False
        return bool(self.failures.arm if self.difference.mean < 0 else self.failures.baseline)


@dataclass(frozen=True)
class Judgement:
    """A comparison of two arms with the verdict on the first. `withheld` is the reason for a missing verdict."""

    arm: str
    base: str
    comparison: Comparison
    verdict: Verdict
    withheld: str | None

    @property
    def seeds_needed(self) -> int | None:
        """Number of further seeds likely to settle it; None if none would, or if it is already settled."""
        return seeds_needed(self.verdict, self.comparison)


def seeds_needed(verdict: Verdict, found: Comparison | None) -> int | None:
    if found is None or verdict != "inconclusive" or found.shows_difference:
        return None
    return found.seeds_needed
