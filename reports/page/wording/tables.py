"""Tables of text from a summary, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary, as_json
from reports.page.wording import arm_words, cost_words, finding_words, words
from reports.page.wording.table import Columns, Rows, Table
from store.documents.measure import CROWDED
from store.tables import Row

MOST_LISTED = 10_000
"""Most runs listed on a page, whose table shows a few hundred at a time; more would make the page too large."""
RunRow = dict[str, Any]
"""A row of the frame of runs."""
SOMETIMES = ("bits/byte", "bits per byte", "accuracy", "above floor", "tokens/s", "failed", "devices", "waited")
"""Columns that are dropped if empty: bits exist for text, the next two for synthetic tasks."""


def closing_table(summary: StudySummary) -> Rows:
    """Arm, loss, bits per byte or accuracy, speed, memory, failed seeds and verdict; header first."""
    columns: Columns[ArmSummary] = {
        "arm": lambda arm: arm.name,
        "loss (nats)": lambda arm: words.plus_minus(arm.loss),
        "difference": lambda arm: words.difference(arm.comparison) if arm.comparison else words.NONE,
        "bits/byte": lambda arm: words.plus_minus(arm.bits_per_byte),
        "accuracy": lambda arm: words.plus_minus(arm.accuracy),
        "above floor": lambda arm: words.plus_minus(arm.excess),
        "tokens/s": lambda arm: words.whole(arm.training_speed),
        "peak memory": peak_memory,
        "KV bytes/token": lambda arm: words.whole(arm.planned.kv_bytes_per_token),
        "failed": lambda arm: arm_words.failed(arm) or words.NONE,
        "verdict" if summary.is_about_loss else "verdict on the loss": lambda arm: finding_words.verdict(summary, arm),
    }
    return Table.of(summary.arms, columns).without_empty(SOMETIMES).lines


def compact_table(summary: StudySummary) -> Table:
    """Six columns: each arm's result, and its cost as a multiple of the baseline's."""
    columns: Columns[ArmSummary] = {
        "arm": lambda arm: arm.name,
        f"loss ({summary.unit})": lambda arm: words.plus_minus(arm.loss),
        f"against {summary.baseline}": lambda arm: _difference(arm.comparison),
        "training speed": lambda arm: (
            f"{words.plus_minus(arm.comparison.costs.training)}×"
            if arm.comparison and arm.comparison.costs.training
            else words.NONE
        ),
        "KV cache": lambda arm: _cache_times(arm.comparison),
        "verdict" if summary.is_about_loss else "verdict on the loss": lambda arm: finding_words.verdict(summary, arm),
    }
    return Table.of(summary.arms, columns).without_empty(list(columns)[1:5])


def _difference(found: Comparison | None) -> str:
    """The difference without its unit, which the heading has."""
    return words.difference(found).removesuffix(" nats") if found else words.NONE


def _cache_times(found: Comparison | None) -> str:
    """`0.25×`, or `0.0312× at 512 tokens`."""
    if found is None or found.costs.kv_ratio is None:
        return words.NONE
    where = f" at {found.costs.kv_context:,} tokens" if found.costs.kv_context else ""
    return f"{found.costs.kv_ratio:.3g}×{where}"


def arms_table(summary: StudySummary) -> Table:
    """All results on each arm."""
    # softmax or linear: speed also depends on the backend
    known = summary.runs.drop_nulls("attention").unique(["arm", "attention"]).sort("arm", "attention")
    backends = {str(arm): "; ".join(part["attention"]) for (arm,), part in known.group_by("arm")}
    columns: Columns[ArmSummary] = {
        "arm": lambda arm: arm.name,
        "verdict": lambda arm: arm.verdict,
        f"validation loss ({summary.unit})": lambda arm: words.plus_minus(arm.loss),
        f"difference from the baseline ({summary.unit})": lambda arm: _difference(arm.comparison),
        "p (corrected)": lambda arm: words.p_value(arm.comparison.p_holm) if arm.comparison else words.NONE,
        "p for equivalence (Holm)": lambda arm: (
            words.p_value(arm.comparison.p_equivalence) if arm.comparison else words.NONE
        ),
        f"smallest detectable ({summary.unit})": lambda arm: (
            words.detectable(arm.comparison.detectable) if arm.comparison and arm.comparison.detectable else words.NONE
        ),
        "more seeds to settle it": lambda arm: words.whole(arm.seeds_needed),
        "among n-gram models": lambda arm: arm_words.standing(summary, arm.name) or words.NONE,
        **ARM_MEASURES,
        "KV cache (bytes/token)": lambda arm: words.whole(arm.planned.kv_bytes_per_token),
        "attention backend": lambda arm: backends.get(arm.name, words.NONE),
        "seeds": _seed_count,
    }
    return Table.of(summary.arms, columns, labels=2).without_empty()


def _seed_count(arm: ArmSummary) -> str:
    others = ((arm.stalled, "stalled"), (arm.diverged, "diverged"), (arm.missing, "missing"))
    notes = [f"{len(seeds)} {word}" for seeds, word in others if seeds]
    return ", ".join([str(len(arm.seeds)), *notes])


def budgets_table(summary: StudySummary) -> Table:
    """Budget of each arm per run, and its deviation from the baseline."""
    base = summary.baseline_arm.planned
    columns: Columns[ArmSummary] = {
        "arm": lambda arm: arm.name,
        "FLOPs": lambda arm: _against(words.large(arm.planned.flops), arm.planned.flops, base.flops),
        "tokens": lambda arm: _against(words.count(arm.planned.tokens), arm.planned.tokens, base.tokens),
        "steps": lambda arm: words.whole(arm.planned.steps),
        "parameters": lambda arm: words.count(arm.planned.parameters_non_embedding),
        "total parameters": lambda arm: _against(
            words.count(arm.planned.parameters), arm.planned.parameters, base.parameters
        ),
        # without a comparison: a run's time does not show which arm is faster, since other work may have slowed it
        "train time": lambda arm: words.seconds(arm.train_seconds),
    }
    if allowed := summary.study.budget.seconds:
        against = f"train time against {words.seconds(allowed)}"
        columns = {
            **columns,
            against: lambda arm: (
                f"{words.signed(100 * (arm.train_seconds / allowed - 1), 1)} %" if arm.train_seconds else words.NONE
            ),
        }
    return Table.of(summary.arms, columns)


def _against(text: str, value: float | None, base: float | None) -> str:
    """The text, with the percentage by which the value differs from the baseline's, if it does."""
    if not value or not base or abs(value / base - 1) < 5e-4:
        return text
    return f"{text} ({words.signed(100 * (value / base - 1), 1)} %)"


def listed(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs that a page lists: all, or, if they are too many, the first of each arm and those that did not finish."""
    if runs.height <= MOST_LISTED:
        return runs
    room = max(1, MOST_LISTED // runs["arm"].n_unique())
    is_odd = pl.col("status") != "finished"
    return runs.filter((pl.int_range(pl.len()).over("arm") < room) | (is_odd & (is_odd.cum_sum() <= MOST_LISTED)))


def runs_table(runs: pl.DataFrame) -> Table:
    """One row per run that the study asked for, whatever its status."""
    columns: Columns[RunRow] = {
        "arm": lambda run: str(run["arm"]),
        "run": lambda run: str(run["digest"])[:12],
        "status": lambda run: f"{run['status']}: {run['reason']}" if run["reason"] else run["status"],
        "seed": lambda run: str(run["seed"]),
        "loss": lambda run: words.fixed(run["loss"], 4),
        "bits per byte": lambda run: words.fixed(run["bits_per_byte"], 4),
        "accuracy": lambda run: words.fixed(run["accuracy"], 4),
        "training loss": lambda run: words.fixed(run["train_loss"], 4),
        "steps": lambda run: words.whole(run["steps"]),
        "tokens": lambda run: words.whole(run["tokens"]),
        # of runs whose speed no other work affected
        "tokens/s": lambda run: words.whole(
            None if (run["waiting"] or 0.0) >= CROWDED or run["beside"] else run["tokens_per_second"]
        ),
        "devices": lambda run: words.whole(None if run["devices"] == 1 else run["devices"]),  # hidden if 1
        # time waited for a processor, if that is why the run has no speed
        "waited": lambda run: f"{100 * run['waiting']:.0f} %" if (run["waiting"] or 0.0) >= CROWDED else words.NONE,
        "peak memory": lambda run: words.size(run["peak_memory_bytes"]),
        "gradient norm": lambda run: words.fixed(run["grad_norm"], 2),
        "gradient spikes": lambda run: words.whole(run["grad_norm_spikes"]),
        "loss spikes": lambda run: words.whole(run["loss_spikes"]),
        "training time": lambda run: words.seconds(run["train_seconds"]),
        "wall time": lambda run: words.seconds(run["wall_seconds"]),
    }
    return Table.of(runs.iter_rows(named=True), columns, labels=3).without_empty(SOMETIMES)


def run_documents(runs: pl.DataFrame) -> list[Row]:
    """All fields of each run, in order, for the page's details and download: losses to 1e-7, times to 1e-3 s."""
    numbers = pl.selectors.float()
    losses = (numbers & pl.selectors.matches("loss$|bits_per_byte$|accuracy$")).round(7)
    times = (numbers & pl.selectors.matches("seconds$|tokens_per_second$")).round(3)
    return runs.drop("loss_spike_steps").with_columns(losses, times).to_dicts()


def edits_table(summary: StudySummary) -> Table:
    """The exact edits that turn the base model into each arm: its own, then those of tuning and of matching."""
    rows = tuple(
        (arm.name, path, value, origin)
        for arm in summary.arms
        for edits, origin in (
            (arm.edits or (("(none)", ""),), "the arm"),
            (as_json(arm.planned.tuned), "tuning"),
            (as_json(arm.planned.matching), "matching parameters"),
        )
        for path, value in edits
    )
    return Table(("arm", "path", "value", "edited by"), rows, labels=4)


def environment_table(summary: StudySummary) -> Table:
    rows = tuple((key, ", ".join(values)) for key, values in summary.environment)
    return Table(("what", "value"), rows, labels=2)


def statuses(runs: pl.DataFrame) -> str:
    """`8 finished, 1 diverged`."""
    counts = runs.group_by("status").len().sort("len", "status", descending=[True, False])
    return ", ".join(f"{n} {status}" for status, n in counts.iter_rows())


Better = Literal["low", "high"]


def mean_of(arm: ArmSummary, column: str) -> float | None:
    """Mean over the arm's seeds of a numeric column of the frame of runs."""
    found = arm.means.get(column)
    return None if found is None else found.mean


def _speed(arm: ArmSummary) -> str:
    """Training speed, as measured against the other arms rather than in the arm's own runs."""
    ratio = arm.comparison.costs.training if arm.comparison else None
    change = cost_words.speed_change(ratio).removesuffix(" in speed")
    return words.whole(arm.training_speed) + (f" ({change})" if change else "")


def _utilisation(arm: ArmSummary) -> str:
    """Model FLOP utilisation at the measured speed, relative to the matrix products that undisturbed runs measured and
    to the data sheet."""
    measured, published = _share(arm, "matmul_flops_per_second"), _share(arm, "published_flops_per_second")
    known = f"{published} of the data sheet's" if published != words.NONE else ""
    return f"{measured} ({known})" if known and measured != words.NONE else known or measured


def _share(arm: ArmSummary, ceiling: str) -> str:
    peak = mean_of(arm, ceiling)
    if arm.training_speed is None or not peak:
        return words.NONE
    return f"{100 * arm.training_speed * arm.planned.flops_per_token / peak:.1f} %"


def peak_memory(arm: ArmSummary) -> str:
    """`450 MiB`; marked as unclear if its difference from the baseline's may be noise."""
    mean = mean_of(arm, "peak_memory_bytes")
    if mean is None or arm.comparison is None:
        return words.size(mean)
    ratio = arm.comparison.costs.memory
    is_clear = ratio is not None and not cost_words.memory_change(ratio).startswith(cost_words.NO_CHANGE)
    return words.size(mean) + ("" if is_clear else " (unclear)")


ARM_MEASURES: Mapping[str, Callable[[ArmSummary], str]] = MappingProxyType(
    {
        "bits per byte": lambda arm: words.plus_minus(arm.bits_per_byte),
        "accuracy": lambda arm: words.plus_minus(arm.accuracy),
        "loss above the floor (nats/token)": lambda arm: words.plus_minus(arm.excess),
        "training speed (tokens/s)": _speed,
        "model FLOP utilisation": _utilisation,
        "peak memory": peak_memory,
    }
)
"""Cells of the table of arms, by heading."""
