"""Tables of a search's report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ablate.wings.search.documents import TrialRecord
from ablate.wings.search.shown.search_summary import SearchSummary
from ablate.wings.search.shown.selection_bias import DECLARED, FreshScore
from ablate.wings.search.shown.standings import SearchStanding
from reports.page.wording import words
from reports.page.wording.arm_names import setting_name
from reports.page.wording.table import NONE, Columns, Table

TITLES = {
    "loss": "loss (nats per token)",
    "bits_per_byte": "bits per byte",
    "kv_bytes_per_token": "KV cache (bytes per token)",
    "peak_memory_bytes": "peak memory (bytes)",
    "flops_per_token": "FLOPs per token",
    "tokens_per_second": "training speed (tokens per second)",
    "decode_tokens_per_second": "decoding speed (tokens per second)",
    "prefill_tokens_per_second": "prefill speed (tokens per second)",
}


def titles_of(paths: Sequence[str]) -> dict[str, str]:
    """`kv heads` for `block.mixer.kv_heads`; the full path if two paths end alike."""
    tails = Counter(map(setting_name, paths))
    return {path: path if tails[setting_name(path)] > 1 else setting_name(path) for path in paths}


def objective_title(name: str) -> str:
    """An objective with its unit, as an axis label."""
    return TITLES.get(name, name.replace("_", " "))


def closing_table(search: SearchSummary) -> Table:
    """The best trials for a terminal; all trials if none is called the best."""
    return trials_table(search, search.best if search.is_judged else search.trials)


def trials_table(search: SearchSummary, trials: Sequence[TrialRecord]) -> Table:
    """Rows: the best trials first, then by the first objective; trials without a score last."""
    maximized = next(iter(search.objectives.values()), "minimize") == "maximize"

    def key(trial: TrialRecord) -> tuple[bool, bool, float, int]:
        first = trial.scores[0] if trial.is_scored else math.inf
        is_best = trial.number in search.best_numbers
        return (not is_best, not trial.is_scored, -first if maximized else first, trial.number)

    columns = ("trial", "state", *search.objectives, *titles_of(list(search.document.space)).values())
    return Table(columns, tuple(_row(search, trial) for trial in sorted(trials, key=key)), labels=2)


def _row(search: SearchSummary, trial: TrialRecord) -> tuple[str, ...]:
    values = trial.values or (None,) * len(search.objectives)
    standing = search.standing(trial.number)
    shown = [NONE if v is None else f"{v:,.0f}" if abs(v) >= 10_000 else f"{v:.5g}" for v in values]
    if standing is not None:
        shown = [_with_interval(name, value, standing) for name, value in zip(search.objectives, shown, strict=True)]
    settings = (trial.settings.get(path, NONE) for path in search.document.space)
    return (str(trial.number), _state(trial), *shown, *map(setting_text, settings))


def _state(trial: TrialRecord) -> str:
    if trial.repeats is not None:
        return f"seed of trial {trial.repeats}"
    if trial.beyond:
        return f"beyond {', '.join(trial.beyond)}"
    if trial.values is not None and not trial.is_scored:
        return "diverged"
    return "from the store" if trial.imported else trial.state


def _with_interval(name: str, value: str, standing: SearchStanding) -> str:
    """`2.543 ± 0.012 (3 seeds)` for an objective that depends on the seed; else the value alone."""
    half = standing.half_widths[name]
    if name in DECLARED:
        return value
    seeds = "1 seed" if standing.seeds == 1 else f"{standing.seeds} seeds"
    return f"{value} ± {half:.2g} ({seeds})" if half is not None else f"{value} ({seeds})"


def setting_text(value: Any) -> str:
    """A setting's value in short form."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def fresh_table(fresh: Iterable[FreshScore]) -> Table:
    """Search scores beside scores on fresh seeds."""
    columns: Columns[FreshScore] = {
        "objective": lambda each: each.objective,
        "arm": lambda each: each.arm,
        "in the search": lambda each: _score(each.searched),
        "with fresh seeds": _fresh_score,
        "difference": lambda each: NONE if each.difference is None else signed(each.difference),
    }
    return Table.of(fresh, columns, labels=2)


def _fresh_score(each: FreshScore) -> str:
    if each.fresh is None:
        return "not every seed has a score"
    return _score(each.fresh.mean) + (f" ± {_score(each.fresh.half_width)}" if each.fresh.half_width else "")


def signed(difference: float) -> str:
    """Signed difference, to two significant digits."""
    return words.signed(difference, words.decimals(difference))


def _score(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}".rstrip("0").rstrip(".")


def illegal_table(search: SearchSummary) -> Table:
    illegal = search.document.illegal.items()
    return Table(("reason", "proposals"), tuple((reason, str(count)) for reason, count in illegal))
