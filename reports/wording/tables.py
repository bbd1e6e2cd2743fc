"""Tables of text from a summary: for the terminal, and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from ablate.store.documents.costs import CROWDED
from reports.findings.shapes import ArmBudget, ArmSummary, Comparison, StudySummary
from reports.reading.keys import Row
from reports.wording import failure_words, words
from reports.wording.measures import RUN_MEASURES, mean_of

Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Table:
    """Text with a header; every column but the first `labels` is of numbers."""

    columns: tuple[str, ...]
    rows: Rows
    labels: int = 1


SOMETIMES = ("bits/byte", "bits per byte", "accuracy", "above floor", "tokens/s", "failed", "devices", "waited")
"""Columns that are left out where they are empty: text has bits, synthetic tasks the next two."""


def closing_table(summary: StudySummary) -> Rows:
    """Arm, loss, bits per byte or accuracy, speed, memory, failed seeds and verdict; the header first."""
    header = (
        "arm",
        "loss (nats)",
        "difference",
        "bits/byte",
        "accuracy",
        "above floor",
        "tokens/s",
        "peak memory",
        "KV bytes/token",
        "failed",
        "verdict",
    )
    table = without_empty(Table(header, tuple(_closing_row(summary, arm) for arm in summary.arms)), SOMETIMES)
    return table.columns, *table.rows


def _closing_row(summary: StudySummary, arm: ArmSummary) -> tuple[str, ...]:
    return (
        arm.name,
        words.plus_minus(arm.loss),
        words.difference(arm.comparison) if arm.comparison else words.NONE,
        words.plus_minus(arm.bits_per_byte),
        words.plus_minus(arm.accuracy),
        words.plus_minus(arm.excess),
        words.whole(arm.training_speed),
        words.size(mean_of(arm, "peak_memory_bytes")),
        words.whole(arm.kv_bytes_per_token),
        failure_words.failed(arm) or words.NONE,
        words.verdict(summary, arm),
    )


def compact_table(summary: StudySummary) -> Table:
    """Six columns: what is found of each arm, and what it costs as a multiple of the baseline's."""
    base = summary.baseline
    columns = ("arm", f"loss ({summary.unit})", f"against {base}", "training speed", "KV cache", "verdict")
    rows = (
        (
            arm.name,
            words.plus_minus(arm.loss),
            words.difference(arm.comparison).removesuffix(" nats") if arm.comparison else words.NONE,
            _times(arm.comparison),
            _cache_times(arm.comparison),
            words.verdict(summary, arm),
        )
        for arm in summary.arms
    )
    return without_empty(Table(columns, tuple(rows)), columns[1:5])


def _times(found: Comparison | None) -> str:
    """`0.95 ± 0.04×`, as measured against the baseline."""
    if found is None or found.costs.training is None:
        return words.NONE
    return f"{words.plus_minus(found.costs.training)}×"


def _cache_times(found: Comparison | None) -> str:
    """`0.25×`, or `0.0312× at 512 tokens`."""
    if found is None or found.costs.kv_ratio is None:
        return words.NONE
    where = f" at {found.costs.kv_context:,} tokens" if found.costs.kv_context else ""
    return f"{found.costs.kv_ratio:.3g}×{where}"


def arms_table(summary: StudySummary) -> Table:
    """Everything that is known of each arm."""
    columns = (
        "arm",
        "verdict",
        f"validation loss ({summary.unit})",
        f"difference from the baseline ({summary.unit})",
        "p (Holm)",
        "p for equivalence (Holm)",
        f"smallest detectable ({summary.unit})",
        "more seeds to settle it",
        *(each.heading for each in RUN_MEASURES if each.text),
        "KV cache (bytes/token)",
        "attention backend",
        "seeds",
    )
    backends = attention_backends(summary)
    return without_empty(Table(columns, tuple(_arm_row(arm, backends) for arm in summary.arms), labels=2))


def attention_backends(summary: StudySummary) -> dict[str, str]:
    """Attention backends of runs by arm, softmax or linear, since speed also depends on the backend."""
    known = summary.runs.drop_nulls("attention").unique(["arm", "attention"]).sort("arm", "attention")
    return {str(arm): "; ".join(part["attention"]) for (arm,), part in known.group_by("arm")}


def without_empty(table: Table, among: Iterable[str] | None = None) -> Table:
    """Without the columns that say nothing of any row; only those of some names are left out where `among` has them."""
    spare = table.columns if among is None else set(among)
    said = [any(row[i] != words.NONE for row in table.rows) for i in range(len(table.columns))]
    kept = [i for i, name in enumerate(table.columns) if said[i] or name not in spare]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(tuple(table.columns[i] for i in kept), rows, table.labels)


def _arm_row(arm: ArmSummary, backends: dict[str, str]) -> tuple[str, ...]:
    found = arm.comparison
    return (
        arm.name,
        arm.verdict,
        words.plus_minus(arm.loss),
        words.difference(found).removesuffix(" nats") if found else words.NONE,
        words.p_value(found.p_holm) if found else words.NONE,
        words.p_value(found.p_equivalence) if found else words.NONE,
        words.detectable(found.detectable) if found and found.detectable else words.NONE,
        words.whole(arm.seeds_needed),
        *(each.text(arm) for each in RUN_MEASURES if each.text),
        words.whole(arm.kv_bytes_per_token),
        backends.get(arm.name, words.NONE),
        _seed_count(arm),
    )


def _seed_count(arm: ArmSummary) -> str:
    others = ((arm.stalled, "stalled"), (arm.diverged, "diverged"), (arm.missing, "missing"))
    notes = [f"{len(seeds)} {word}" for seeds, word in others if seeds]
    return ", ".join([str(len(arm.seeds)), *notes])


def budgets_table(summary: StudySummary) -> Table:
    """Budget of each arm per run, and its deviation from the baseline."""
    columns = ("arm", "FLOPs", "tokens", "steps", "parameters", "embedding parameters", "train time")
    base = next(arm for arm in summary.arms if arm.name == summary.baseline).budget
    timed = (f"train time against {words.seconds(base.allowed_seconds)}",) if base.allowed_seconds else ()
    return Table(
        (*columns, *timed),
        tuple(
            (
                arm.name,
                _against(words.large(arm.budget.flops), arm.budget.flops, base.flops),
                _against(words.count(arm.budget.tokens), arm.budget.tokens, base.tokens),
                words.whole(arm.budget.steps),
                _against(words.count(arm.budget.parameters), arm.budget.parameters, base.parameters),
                words.count(arm.parameters_embedding),
                _against(
                    words.seconds(arm.budget.train_seconds),
                    arm.budget.train_seconds,
                    base.train_seconds,
                ),
                *(_off_time(arm.budget) for _ in timed),
            )
            for arm in summary.arms
        ),
    )


def _off_time(budget: ArmBudget) -> str:
    """Deviation of the mean run from its allowed time: `+1.2 %`."""
    if not budget.train_seconds or not budget.allowed_seconds:
        return words.NONE
    return f"{words.signed(100 * (budget.train_seconds / budget.allowed_seconds - 1), 1)} %"


def _against(text: str, value: float | None, base: float | None) -> str:
    """The text with the percentage by which the value differs from the baseline's, if at all."""
    if not value or not base or abs(value / base - 1) < 5e-4:
        return text
    return f"{text} ({words.signed(100 * (value / base - 1), 1)} %)"


def runs_table(summary: StudySummary) -> Table:
    """One row for each run that the study asked for, whatever became of it."""
    columns = (
        "arm",
        "run",
        "status",
        "seed",
        "loss",
        "bits per byte",
        "accuracy",
        "training loss",
        "steps",
        "tokens",
        "tokens/s",
        "devices",
        "waited",
        "peak memory",
        "gradient norm",
        "gradient spikes",
        "loss spikes",
        "training time",
        "wall time",
    )
    rows = tuple(_run_row(row) for row in summary.runs.iter_rows(named=True))
    return without_empty(Table(columns, rows, labels=3), SOMETIMES)


def _run_row(run: dict[str, float | str | None]) -> tuple[str, ...]:
    def number(name: str) -> float | None:
        value = run[name]
        return value if isinstance(value, int | float) else None

    status = f"{run['status']}: {run['reason']}" if run["reason"] else str(run["status"])
    return (
        str(run["arm"]),
        str(run["digest"])[:12],
        status,
        str(run["seed"]),
        *(_fixed(number(name), 4) for name in ("loss", "bits_per_byte", "accuracy", "train_loss")),
        *(words.whole(number(name)) for name in ("steps", "tokens")),
        words.whole(None if _is_disturbed(number("waiting"), number("beside")) else number("tokens_per_second")),
        _devices(number("devices")),
        _waited(number("waiting")),
        words.size(number("peak_memory_bytes")),
        _fixed(number("grad_norm"), 2),
        words.whole(number("grad_norm_spikes")),
        words.whole(number("loss_spikes")),
        words.seconds(number("train_seconds")),
        words.seconds(number("wall_seconds")),
    )


def _is_disturbed(waited: float | None, beside: float | None) -> bool:
    """Whether a run's speed is not its own."""
    return (waited or 0.0) >= CROWDED or bool(beside)


def _devices(count: float | None) -> str:
    """One goes without saying."""
    return words.NONE if count is None or count == 1 else words.whole(count)


def _waited(share: float | None) -> str:
    """For a processor, as a share of training, where that is why it has no speed."""
    return words.NONE if share is None or share < CROWDED else f"{100 * share:.0f} %"


def run_documents(summary: StudySummary) -> list[Row]:
    """Each run in full, in the rows' order: for the page's details and its download."""
    hidden = ("loss_spike_steps",)
    return [
        {name: value for name, value in run.items() if name not in hidden} for run in summary.runs.iter_rows(named=True)
    ]


def _fixed(value: float | None, digits: int) -> str:
    return words.NONE if value is None else f"{value:.{digits}f}"


def edits_table(summary: StudySummary) -> Table:
    """The exact edits that make each arm out of the base model: its own, then those that tuning and matching made."""
    rows = tuple(
        (arm.name, path, value, origin)
        for arm in summary.arms
        for edits, origin in (
            (arm.edits or (("(none)", ""),), "the arm"),
            (arm.tuned, "tuning"),
            (arm.matching, "matching parameters"),
        )
        for path, value in edits
    )
    return Table(("arm", "path", "value", "edited by"), rows, labels=4)


def environment_table(summary: StudySummary) -> Table:
    rows = tuple((key, ", ".join(values)) for key, values in summary.environment)
    return Table(("what", "value"), rows, labels=2)


def frame_table(columns: Iterable[str], rows: Iterable[Iterable[str]], labels: int = 1) -> Table:
    return Table(tuple(columns), tuple(tuple(row) for row in rows), labels)


def statuses(runs: pl.DataFrame) -> str:
    """`8 finished, 1 diverged`."""
    counts = runs.group_by("status").len().sort("len", "status", descending=[True, False])
    return ", ".join(f"{n} {status}" for status, n in counts.iter_rows())
