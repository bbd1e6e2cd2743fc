"""Runs at several sizes or lengths: which of them are at one budget, and the effective compute of every arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from ablate.wings.compare.loss_table import amount
from ablate.wings.ladders.effective_compute import Budget, EffectiveCompute, effective_compute, worth
from reports.judge.statistics.estimates import Interval
from store.errors import ArgumentError

ALIKE = 1.25
"""Factor between FLOPs up to which runs of different arms are at one budget."""
FLOPS_PER_PARAMETER = 6
"""FLOPs of training for each parameter and token, if a table has no FLOPs (Kaplan et al. 2020, arXiv:2001.08361)."""
NATS = 0.01
INTERVALS = (*(f"{name}{end}" for name in ("", "largest_", "seconds_") for end in ("low", "high")),)
SCHEMA = {
    **{"arm": pl.String, "against": pl.String, "budgets": pl.Int64},
    **dict.fromkeys(("factor", "low", "high", "p"), pl.Float64),
    "verdict": pl.String,
    **dict.fromkeys(("largest", "largest_low", "largest_high", "per_tenfold", "trend_p"), pl.Float64),
    "changes": pl.String,
    **dict.fromkeys(("speed", "seconds", "seconds_low", "seconds_high"), pl.Float64),
    "noise": pl.Float64,
    "noise_freedom": pl.Float64,
    **{"noise_origin": pl.String, "reason": pl.String},
}
BY_BUDGET = {
    **{"arm": pl.String, "budget": pl.String},
    **dict.fromkeys(("flops", "loss", "factor", "low", "high"), pl.Float64),
    "seeds": pl.Int64,
}


def with_budgets(frame: pl.DataFrame, baseline: str) -> pl.DataFrame:
    """The runs with `flops`, and `budget`, its name; without either if all are at one budget.

    Runs are at one budget if their FLOPs are alike, and so is the name of their size where the baseline has that name.
    Raises ArgumentError if an arm has several budgets whose FLOPs are unknown.
    """
    runs = frame.with_columns(
        pl.lit(None, pl.String if name == "size" else pl.Float64).alias(name)
        for name in ("size", "params", "flops", "tokens")
        if name not in frame.columns
    )
    named = pl.Series([_parameters(size) for size in runs["size"]], dtype=pl.Float64)
    runs = runs.with_columns(params=pl.coalesce("params", named))
    runs = runs.with_columns(flops=pl.coalesce("flops", FLOPS_PER_PARAMETER * pl.col("params") * pl.col("tokens")))
    key = [name for name in ("arm", "seed", "split", "rate") if name in frame.columns]
    lacking = runs.filter(pl.col("flops").is_null())
    if lacking.height:
        sizes = pl.struct("size", "params").n_unique() > 1
        twice = pl.struct(name for name in key if name != "arm").is_duplicated().any()
        if runs.group_by("arm").agg((sizes | twice).alias("several"))["several"].any():
            first = lacking.row(0, named=True)
            lost = " and ".join(f"`{name}`" for name in ("params", "tokens") if first[name] is None)
            where = f"seed {first['seed']} of {first['arm']}" + (f" at {first['size']}" if first["size"] else "")
            raise ArgumentError(
                "losses",
                f"runs differ in size or tokens, so effective compute needs `flops` of every run, or `params` (or a "
                f"`size` such as 125M) and `tokens`: {lacking.height} of {runs.height} runs lack {lost}, the first is "
                f"{where}; `--list --json` prints the runs of logs as a table, to which columns can be added",
            )
        return frame.drop("flops", strict=False)
    shared = runs.filter(arm=baseline)["size"].drop_nulls().unique().to_list()
    runs = runs.with_columns(label=pl.when(pl.col("size").is_in(shared)).then("size"))
    return runs.with_columns(budget=pl.Series(_names(runs, key))).drop("label")


def _parameters(size: str | None) -> float | None:
    """Parameters by a size's name: `125M`, `1.3B`, `1e9`."""
    try:
        return amount(size)
    except ValueError:
        return None


def _names(runs: pl.DataFrame, key: Sequence[str]) -> list[str]:
    """The budget of each run: its size and FLOPs, those of the smallest of runs that are alike."""
    first: dict[tuple[str | None, float], float] = {}
    for label in runs["label"].unique().to_list():
        start = last = 0.0
        for flops in sorted(runs.filter(pl.col("label").eq_missing(label))["flops"].unique()):
            start = flops if flops > ALIKE * last else start
            first[label, flops] = start
            last = flops
    places = [first[each] for each in runs.select("label", "flops").iter_rows()]
    merged = runs.with_columns(place=pl.Series(places, dtype=pl.Float64))
    if merged.select(pl.struct(*key, "label", "place").is_duplicated().any()).item():
        merged = runs.with_columns(place="flops")  # budgets so close that only equal ones are the same
    several = merged.select(pl.col("place").n_unique().over("label") > 1).to_series().to_list()
    return [
        f"{label} at {place:.3g} FLOPs" if label and many else label or f"{place:.3g} FLOPs"
        for (label, place), many in zip(merged.select("label", "place").iter_rows(), several, strict=True)
    ]


def arms_of(runs: pl.DataFrame) -> dict[str, list[Budget]]:
    """Finished judging runs of every arm by budget."""
    judged = runs.filter(split="judging") if "split" in runs.columns else runs
    found: dict[str, list[Budget]] = {name: [] for name in runs["arm"].unique(maintain_order=True)}
    for (arm, name), rows in judged.group_by("arm", "budget", maintain_order=True):
        done = rows.filter(pl.col("loss").is_finite())
        if done["seed"].is_duplicated().any():
            raise ArgumentError(
                "losses", f"{arm} has a seed twice at {name}: mark the runs that chose its rate as `tuning` in `split`"
            )
        losses = dict(zip(done["seed"].to_list(), done["loss"].to_list(), strict=True))
        found[str(arm)].append(Budget(str(name), fmean(rows["flops"].to_list()), losses))
    return found


def largest(arms: Mapping[str, Sequence[Budget]], baseline: str) -> str:
    """The baseline's largest budget at which another arm has a run, or else its largest."""
    others = {each.name for name, of in arms.items() if name != baseline for each in of}
    curve = sorted(arms[baseline], key=lambda each: (each.name in others, each.flops))
    return curve[-1].name


def judged_compute(
    runs: pl.DataFrame, baseline: str, sigma: float | None
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Effective compute of every arm, the same at each budget alone, and notes."""
    arms, speeds = arms_of(runs), _speeds(runs)
    judged = runs.filter(split="judging") if "split" in runs.columns else runs
    failed = dict(judged.filter(~pl.col("loss").is_finite().fill_null(False)).group_by("arm").len().iter_rows())
    found = [_barred(each, baseline, failed) for each in effective_compute(arms, baseline, sigma)]
    rows = [_row(each, baseline, _ratio(speeds, each.arm, baseline)) for each in found]
    by_budget = []
    for name, of in arms.items():
        alone = {flops: interval for each in found if each.arm == name for flops, interval in each.by_budget}
        for each in sorted((each for each in of if each.losses), key=lambda one: one.flops):
            factor = alone.get(each.flops, Interval(1.0, 1.0, 1.0) if name == baseline else None)
            ends = (factor.value, factor.low, factor.high) if factor else (None, None, None)
            by_budget.append((name, each.name, each.flops, each.mean, *ends, len(each.losses)))
    return (
        pl.DataFrame(rows, schema=SCHEMA, orient="row"),
        pl.DataFrame(by_budget, schema=BY_BUDGET, orient="row"),
        _notes(runs, arms, baseline, found, bool(speeds)),
    )


def _barred(found: EffectiveCompute, baseline: str, failed: Mapping[str, int]) -> EffectiveCompute:
    """An arm with failed runs is not better, and none is worse than a baseline with failed runs."""
    loser = {"better": found.arm, "worse": baseline}.get(found.verdict, "")
    if not failed.get(loser):
        return found
    runs = f"{failed[loser]} run{'s' * (failed[loser] > 1)} of {loser}"
    return replace(found, verdict="inconclusive", reason=f"{runs} failed, so {found.arm} cannot be {found.verdict}")


def _row(found: EffectiveCompute, baseline: str, speed: float | None) -> list[object]:
    none = (None, None, None)
    factor, last, seconds = found.factor, found.by_budget[-1][1] if found.by_budget else None, None
    if factor is not None and speed is not None:
        seconds = factor.times(speed)
    ends = [(each.value, each.low, each.high) if each else none for each in (factor, last, seconds)]
    trend = (found.trend[0].value, found.trend[1]) if found.trend else (None, None)
    noise = (found.noise.sd, found.noise.freedom, found.noise.origin) if found.noise else none
    return [
        *(found.arm, baseline, found.budgets, *ends[0], found.p, found.verdict),
        *(*ends[1], *trend, found.changes, speed, *ends[2], *noise, found.reason),
    ]


def _speeds(runs: pl.DataFrame) -> dict[tuple[str, str], float]:
    """Mean FLOP/s by arm and budget; empty if a table has no speeds, or not the FLOPs of a token."""
    if "tokens_per_second" not in runs.columns:
        return {}
    per_token = pl.coalesce(pl.col("flops") / pl.col("tokens"), FLOPS_PER_PARAMETER * pl.col("params"))
    rates = runs.with_columns(rate=pl.col("tokens_per_second") * per_token).drop_nulls("rate")
    means = rates.group_by("arm", "budget").agg(pl.col("rate").mean())
    return {(arm, budget): rate for arm, budget, rate in means.iter_rows()}


def _ratio(speeds: Mapping[tuple[str, str], float], arm: str, baseline: str) -> float | None:
    """FLOP/s of an arm over the baseline's: the geometric mean over the budgets at which both are known."""
    both = [(rate, speeds.get((baseline, of))) for (name, of), rate in speeds.items() if name == arm]
    ratios = [rate / base for rate, base in both if base]
    return math.exp(fmean(map(math.log, ratios))) if ratios else None


def _notes(
    runs: pl.DataFrame,
    arms: Mapping[str, Sequence[Budget]],
    baseline: str,
    found: Sequence[EffectiveCompute],
    has_speeds: bool,
) -> list[str]:
    notes = []
    conversion = worth(arms[baseline], NATS, *(each.noise.sd for each in found[:1] if each.noise))
    if conversion is not None:
        most = max(arms[baseline], key=lambda each: each.flops)
        share, low, high = (100 * (each - 1) for each in (conversion.value, conversion.low, conversion.high))
        notes.append(
            f"at a loss of {most.mean:.3f} ({most.name}), {NATS} nats are {share:.2g} % of compute ({low:.2g} to "
            f"{high:.2g} %), by the baseline's own curve"
        )
    origins = {each.noise.origin: each.noise for each in found if each.noise}
    for origin, noise in origins.items():
        free = f"{noise.freedom:.0f} degree{'s' * (round(noise.freedom) != 1)} of freedom"
        notes.append(f"noise of one run: {100 * noise.sd:.2g} % of its loss, from {origin} ({free})")
    if "tokens_per_second" in runs.columns and runs["tokens_per_second"].count():
        notes.append(
            "speeds count as exact"
            if has_speeds
            else "no effective compute at equal seconds: the FLOPs of a token need `tokens` or `params`"
        )
    product = FLOPS_PER_PARAMETER * pl.col("params") * pl.col("tokens")
    if runs.select(((product / pl.col("flops") - 1).abs() < 1e-9).all()).item():
        notes.append(f"FLOPs are {FLOPS_PER_PARAMETER} × parameters × tokens")
    return notes
