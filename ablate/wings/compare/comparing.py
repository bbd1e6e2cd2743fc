"""`ablate.compare`: judge losses from any trainer by the rules of the reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import JsonValue

from ablate.wings.compare.budgets import arms_of, judged_compute, largest, with_budgets
from ablate.wings.compare.logs_of_others import ended, is_pattern, read_logs
from ablate.wings.compare.loss_table import BUDGETS, MOST, LossTable, read_table
from ablate.wings.compare.losses import ArmContrast, ArmLosses, facing, judge, noise_of, notes_on, smallest_detectable
from reports.judge.verdicts import ALPHA, looks
from reports.page.wording.arm_words import listed_seeds
from store.documents import JsonObject
from store.errors import ArgumentError
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


COSTS_ALIKE = 0.01


@dataclass(frozen=True)
class LossComparison:
    """Verdicts on arms from their losses.

    Attributes:
        arms: a polars frame: arm, seeds, failed, loss (the mean of the metric), rate, cost (the mean).
        contrasts: a polars frame: arm, against, difference, low, high, p, verdict, reason, paired. p is corrected for
            all contrasts, and low to high excludes zero if p is below 0.05; an end may be infinite. If the noise cannot
            be estimated, only the difference is given. paired is the number of seeds that finished in both arms.
        detectable: the smallest difference that these seeds detect with 80 % probability; None if that is not known.
        notes: caveats for the reader, such as arms of unequal cost.
        runs: a polars frame of the runs that count, as they were read.
        baseline, metric, higher_is_better, source: what was compared, and where it was read.
        compute: a polars frame of effective compute, empty unless the baseline has two budgets or more: arm, against,
            budgets, factor with low, high, p and verdict (corrected for all arms), largest (the same at the largest
            budget alone, uncorrected), per_tenfold (how it changes with tenfold compute) with trend_p, changes
            (`shrinks`, `grows` or empty), speed (FLOP/s over the baseline's), seconds (effective compute at equal
            seconds), noise (of one run, relative to its loss) with its degrees of freedom and origin, and reason (why
            there is none). An end of an interval is 0 or infinite where it is beyond the baseline's curve.
        by_budget: a polars frame of the same at each budget: arm, budget, flops, loss (mean), factor, low, high, seeds.
            With several budgets, `arms` and `contrasts` are those of the largest one.
    """

    arms: pl.DataFrame
    contrasts: pl.DataFrame
    detectable: float | None
    notes: tuple[str, ...] = ()
    runs: pl.DataFrame = field(default_factory=pl.DataFrame)
    baseline: str = ""
    metric: str = "loss"
    higher_is_better: bool = False
    source: str = ""
    compute: pl.DataFrame = field(default_factory=pl.DataFrame)
    by_budget: pl.DataFrame = field(default_factory=pl.DataFrame)

    def document(self) -> JsonObject:
        """The document that `ablate compare --json` prints; infinite ends are null. `compute` and `by_budget` are there
        if the runs have several budgets."""
        several: JsonObject = {"compute": frame_rows(self.compute), "by_budget": frame_rows(self.by_budget)}
        return {
            "arms": frame_rows(self.arms),
            "contrasts": frame_rows(self.contrasts),
            "detectable": self.detectable,
            **(several if self.compute.height else {}),
            "notes": list(self.notes),
        }


def compare(
    losses: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str,
    *,
    baseline: str | None = None,
    margin: float | None = None,
    metric: str | None = None,
    higher_is_better: bool = False,
    sigma: float | None = None,
    planned_seeds: int | None = None,
    curve: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str | None = None,
) -> LossComparison:
    """Judge every arm against the baseline, from final losses alone.

    Args:
        losses: a polars or pandas frame, or a CSV, TSV, parquet, JSON or JSON-lines file (text files also gzipped, as
            `.csv.gz`; `-` is CSV from standard input), with a row for each run and columns `arm`, `seed`, `loss` (lower
            is better; empty, NaN or infinite if the run failed; leave out runs that have not ended). Optional columns:
            `rate` (the learning rate), `split` (`tuning` for runs that chose the rate, `judging` for the others) and
            `cost` (FLOPs, seconds, dollars …). What arms share on common seeds cancels. In a history, with several
            rows per run and a column such as `step`, the last row with a loss counts. Or a pattern that names the logs
            of other trainers: `logs/{arm}-s{seed}/trainer_state.json`; see `ablate.wings.compare.logs_of_others`.
            Runs at several sizes or lengths have `flops`, or `params` (or a `size` such as 125M) and `tokens`;
            `tokens_per_second` adds effective compute at equal seconds.
        baseline: the arm that others are compared with (default: the first one).
        metric: the name of the loss in such logs, or of its column. By default `loss` in a table; else the first of the
            names that trainers use, such as `eval_loss`, `val/loss` and `validation loss`.
        margin: the largest difference that does not matter; without it no verdict is `no difference`.
        higher_is_better: whether higher values of the metric are better, as for an accuracy or a reward: an arm above
            the baseline is then `better`, and differences keep their sign.
        sigma: the standard deviation of one run, if like runs have shown it; the noise of each arm is drawn towards it.
        planned_seeds: the number of seeds that every arm will have in the end, for a table that is judged while it
            grows: it is judged at planned numbers of seeds only, which share the 5 %.
        curve: a baseline's runs at two budgets or more, such as last month's, in the form of `losses`: its runs are
            added to the table as the baseline.

    Returns:
        Verdicts on every arm, with their intervals, as frames.

    Raises:
        ArgumentError: a column is missing or has values that cannot be read; the message gives the remedy.

    Example:
        >>> ablate.compare("losses.csv", baseline="pre", margin=0.01).contrasts
    """
    for name, value in (("margin", margin), ("sigma", sigma)):
        if value is None:
            continue
        if not (isinstance(value, Real) and 0 < value < math.inf):
            raise ArgumentError(name, "expected a finite number above 0", value)
        if not 1 / MOST < float(value) < MOST:  # a NumPy number may be too small a type for either
            raise ArgumentError(name, f"expected a number between {1 / MOST:g} and {MOST:g}", value)
    if planned_seeds is not None and planned_seeds < FIRST_LOOK:
        raise ArgumentError("planned_seeds", f"expected {FIRST_LOOK} or more", planned_seeds)
    table = _read(losses, metric)
    pinned = None if curve is None else _pinned(_read(curve, metric), table, baseline)
    frame = table.frame if pinned is None else pl.concat([table.frame, pinned], how="diagonal_relaxed")
    names = frame["arm"].unique(maintain_order=True).to_list()
    base = baseline or (names[0] if pinned is None else str(pinned["arm"][0]))
    if base not in names:
        raise ArgumentError(
            "baseline", f"no arm of that name{did_you_mean(base, names)}; arms: {', '.join(names)}", base
        )
    if len(names) < 2:
        raise ArgumentError("losses", f"only one arm, {base}: nothing to compare it with")
    runs = with_budgets(frame, base)
    compute, by_budget, notes = pl.DataFrame(), pl.DataFrame(), []
    if "budget" in runs.columns and runs.filter(arm=base)["budget"].n_unique() > 1:
        most = largest(arms_of(runs), base)
        frame = runs.filter(budget=most)
        notes = [f"differences in loss are those at the largest budget, {most}"]
        if higher_is_better:
            notes.append("no effective compute: it needs a loss, and higher values count as better")
        else:
            compute, by_budget, more = judged_compute(runs, base, sigma)
            notes += more
    judged = frame.with_columns(loss=-pl.col("loss")) if higher_is_better else frame
    arms = [_arm(name, judged.filter(arm=name)) for name in names]
    pairs = [(name, base) for name in names if name != base]
    noise = noise_of(arms, sigma)
    look = _look(arms, planned_seeds)
    found = judge(arms, pairs, noise, margin, sign=-1 if higher_is_better else 1, alpha=look.alpha)
    if look.reason:
        found = [replace(each, **WITHHELD, reason=look.reason) for each in found]
    return LossComparison(
        _arms_frame(arms, higher_is_better),
        _contrasts_frame([facing(each) for each in found] if higher_is_better else found),
        None if look.reason else smallest_detectable(pairs, noise, look.alpha),
        (
            *notes_on(table.metric, higher_is_better),
            *table.notes,
            *_failed(runs),
            *notes,
            *_notes(arms, base),
            *_shared_with_tuning(frame),
            look.note,
        ),
        frame if higher_is_better else runs,
        base,
        table.metric,
        higher_is_better,
        str(losses) if isinstance(losses, Path | str) else "",
        compute,
        by_budget,
    )


def _read(losses: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str, metric: str | None) -> LossTable:
    if not (isinstance(losses, Path | str) and is_pattern(str(losses))):
        return read_table(losses, metric)
    found = read_logs(str(losses), metric)
    frame, notes = ended(found.drop_nulls("loss"))
    for seed, arm in found.filter(pl.col("loss").is_null()).select("seed", "arm").iter_rows():
        notes = (*notes, f"seed {seed} of {arm} is left out: its log has no {metric or 'validation loss'}")
    if "{seed}" not in str(losses):
        notes = ("the pattern has no {seed}: every match counts as seed 0 of its arm", *notes)
    by_name = frame.group_by("metric", maintain_order=True).agg(pl.col("arm").unique(maintain_order=True))
    if by_name.height > 1:
        listed = "; ".join(f"`{name}` of {', '.join(arms)}" for name, arms in by_name.iter_rows())
        return LossTable(frame, "loss", (*notes, f"losses of several names are compared: {listed}"))
    name = str(by_name["metric"][0])
    return LossTable(frame, name, notes if metric else (*notes, f"the loss is `{name}`"))


def _pinned(curve: LossTable, table: LossTable, baseline: str | None) -> pl.DataFrame:
    """Runs of a pinned curve: those of its baseline, or of its only arm. Raises ArgumentError."""
    names = curve.frame["arm"].unique(maintain_order=True).to_list()
    if baseline is None and len(names) > 1:
        raise ArgumentError("curve", f"has several arms, {', '.join(names)}: name one as the baseline")
    name = names[0] if baseline is None else baseline
    if name not in names:
        raise ArgumentError("curve", f"has no arm {name}{did_you_mean(name, names)}; arms: {', '.join(names)}")
    own = curve.frame.filter(arm=name)
    keys = [name for name in ("seed", *BUDGETS) if name in own.columns and name in table.frame.columns]
    both = table.frame.filter(arm=name).select(pl.col(keys).cast(pl.String))
    if both.join(own.select(pl.col(keys).cast(pl.String)), on=keys, how="semi", nulls_equal=True).height:
        raise ArgumentError("curve", f"runs of {name} are both in the curve and in the table: keep them in one")
    return own


FIRST_LOOK = 3
"""Fewest seeds at which a growing table is judged."""
WITHHELD: dict[str, Any] = {"low": None, "high": None, "p": None, "detectable": None, "verdict": "no verdict"}
RERUN = (
    "judge a table once: adding seeds from 3 to 10 until a difference shows finds a false one in 12 to 15 % of cases; "
    "--planned-seeds N divides the 5 % among planned looks at a growing table"
)


@dataclass(frozen=True)
class _Look:
    """The look at which a table is judged: its level, the reason why it is not judged at this number of seeds, and a
    note for the reader."""

    alpha: float
    note: str
    reason: str = ""


def _look(arms: Sequence[ArmLosses], planned: int | None) -> _Look:
    if planned is None:
        return _Look(ALPHA, RERUN)
    seeds, plan = min(len(arm.judging) for arm in arms), looks(FIRST_LOOK, planned)
    counts = [look.seeds for look in plan]
    listed = f"looks at {', '.join(map(str, counts))} seeds share the 5 %"
    if seeds in counts:
        return _Look(plan[0].alpha, f"{listed}: this one, at {seeds}, has {100 * plan[0].alpha:.2g} %")
    after = [count for count in counts if count > seeds]
    when = f"the next look is at {after[0]}" if after else f"{planned} were planned"
    return _Look(plan[0].alpha, listed, f"{seeds} seeds are no planned look: {when}")


def found_runs(losses: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str, metric: str | None) -> pl.DataFrame:
    """Every run with its last value, as its names and value are found, before anything is judged or left out."""
    is_logs = isinstance(losses, Path | str) and is_pattern(str(losses))
    return read_logs(str(losses), metric) if is_logs else read_table(losses, metric).frame


def _arm(name: str, rows: pl.DataFrame) -> ArmLosses:
    has_split = "split" in rows.columns
    tuning = rows.filter(split="tuning") if has_split else rows.clear()
    judging = rows.filter(split="judging") if has_split else rows
    if "rate" not in rows.columns and tuning.height:
        raise ArgumentError("losses", f"tuning runs of {name} need a column `rate`")
    rates = judging["rate"].drop_nulls().unique().to_list() if "rate" in rows.columns else []
    if len(rates) > 1:
        raise ArgumentError(
            "losses",
            f"{name} has judging runs at {len(rates)} rates: mark the runs that chose its rate as `tuning` in a "
            "column `split`, and judge it at one rate, with other seeds",
        )
    seeds = judging["seed"].to_list()
    if len(twice := judging.filter(pl.col("seed").is_duplicated())["seed"]):
        raise ArgumentError("losses", f"{name} has seed {twice[0]} twice, with and without a rate")
    if not seeds and rows.height:
        raise ArgumentError("losses", f"{name} has no judging runs")
    by_rate: dict[float, list[float]] = {}
    for rate, loss in tuning.select("rate", "loss").iter_rows() if tuning.height else ():
        if rate is None:
            raise ArgumentError("losses", f"a tuning run of {name} has no rate")
        by_rate.setdefault(rate, []).append(_loss(loss))
    costs = judging["cost"].drop_nulls().to_list() if "cost" in rows.columns else []
    return ArmLosses(
        name,
        {seed: _loss(loss) for seed, loss in zip(seeds, judging["loss"], strict=True)},
        by_rate,
        rates[0] if rates else None,
        sum(costs) / len(costs) if costs else None,
    )


def _loss(value: float | None) -> float:
    """The loss; infinite if the run failed."""
    return value if value is not None and math.isfinite(value) else math.inf


def _arms_frame(arms: list[ArmLosses], higher_is_better: bool) -> pl.DataFrame:
    sign = -1 if higher_is_better else 1
    rows = [
        {
            "arm": arm.name,
            "seeds": len(arm.finished),
            "failed": arm.failed,
            "loss": sign * sum(arm.finished.values()) / len(arm.finished) if arm.finished else None,
            "rate": arm.rate,
            "cost": arm.cost,
        }
        for arm in arms
    ]
    types = {"arm": pl.String, "seeds": pl.Int64, "failed": pl.Int64, "loss": pl.Float64}
    return pl.DataFrame(rows, schema={**types, "rate": pl.Float64, "cost": pl.Float64})


def _contrasts_frame(contrasts: Sequence[ArmContrast]) -> pl.DataFrame:
    types = {
        **dict.fromkeys(("arm", "against"), pl.String),
        **dict.fromkeys(("difference", "low", "high", "p"), pl.Float64),
        **dict.fromkeys(("verdict", "reason"), pl.String),
        "paired": pl.Int64,
    }
    rows = [[getattr(each, name) for name in types] for each in contrasts]
    return pl.DataFrame(rows, schema=list(types.items()), orient="row")


def _failed(frame: pl.DataFrame) -> list[str]:
    """A note that names the runs that count as failed, and the contents of their cells."""
    if "split" in frame.columns:
        frame = frame.filter(split="judging")
    failed = frame.filter(~pl.col("loss").is_finite().fill_null(False))
    cell = pl.when(pl.col("loss").is_null()).then(pl.lit("empty")).otherwise(pl.col("loss").cast(pl.String))
    names = ["arm", *(["budget"] if "budget" in frame.columns and frame["budget"].n_unique() > 1 else [])]
    said = [
        f"{listed_seeds(of['seed'].to_list())} of {' at '.join(map(str, run))} "
        f"({' or '.join(of['cell'].unique(maintain_order=True))})"
        for run, of in failed.with_columns(cell=cell).group_by(names, maintain_order=True)
    ]
    return [f"counted as failed: {'; '.join(said)}"] if said else []


def _notes(arms: list[ArmLosses], baseline: str) -> list[str]:
    """Caveats to the verdicts: unequal costs, and rates that were not tuned or not tried in tuning."""
    base = next(arm for arm in arms if arm.name == baseline)
    notes = []
    if base.cost:
        ratios = {arm.name: arm.cost / base.cost for arm in arms if arm.cost}
        unlike = [f"{name} {ratio:.2f}×" for name, ratio in ratios.items() if abs(ratio - 1) > COSTS_ALIKE]
        if unlike:
            notes.append(f"arms did not cost the same as {baseline}: {', '.join(unlike)}")
    unknown = [arm.name for arm in arms if arm.tuning and arm.rate is None]
    if unknown:
        notes.append(f"{', '.join(unknown)}: judging runs have no rate; assumed to be the best rate of the tuning runs")
    untried = [arm.name for arm in arms if arm.tuning and arm.rate is not None and arm.rate not in arm.tuning]
    if untried:
        notes.append(f"{', '.join(untried)}: judged at a rate that was not tried in tuning")
    if not all(arm.tuning for arm in arms):
        notes.append("not every arm has tuning runs: verdicts hold at the learning rates used, not at each arm's best")
    return notes


def _shared_with_tuning(frame: pl.DataFrame) -> list[str]:
    """A note on arms that are judged on seeds that also chose the rate: the rate was chosen for its result on them."""
    if "split" not in frame.columns:
        return []
    by_seed = frame.group_by("arm", "seed", maintain_order=True)
    both = by_seed.agg(pl.col("split").n_unique()).filter(pl.col("split") > 1)
    arms = ", ".join(map(str, both["arm"].unique(maintain_order=True)))
    return [f"{arms}: tuned and judged on the same seeds, so the chosen rate looks better than it is"] if arms else []


def frame_rows(frame: pl.DataFrame) -> list[JsonValue]:
    """Rows of a frame as dicts by column; infinite numbers and NaN are null."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in frame.iter_rows(named=True)
    ]
