"""Sentences and tables of a search's report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ablate.wings.search.documents import Range, TrialRecord
from ablate.wings.search.shown.fresh_seeds import DECLARED, FreshScore, SearchStanding, selection_bias
from ablate.wings.search.shown.search_summary import Gap, SearchSummary
from reports.judge.sentences import listed
from reports.page.wording import words
from reports.page.wording.arm_words import setting_name
from reports.page.wording.table import NONE, Columns, Table

MOST_SETTINGS = 4
"""Most settings of a trial that the headline lists; the table has them all."""


def headline(search: SearchSummary) -> str:
    """The model found, and the uncertainty of its score."""
    if not search.is_judged:
        return f"A {search.document.scale} search only shows that it works: its runs are too short to find anything."
    if not search.best:
        return "No trial reached the full budget."
    if len(search.objectives) == 1:
        return _of_best(search, search.best[0])
    verb = "is" if len(search.best) == 1 else "are"
    ends = ", ".join(_best_in(search, place) for place in range(len(search.objectives)))
    front = f"{len(search.best)} of {len(search.scored)} scored trials {verb} on the front"
    return f"{ends[0].upper()}{ends[1:]}; {front}.{_base_beside(search)}"


def _of_best(search: SearchSummary, best: TrialRecord) -> str:
    base, gap = search.base, search.against_base
    alike = [each for each in search.standings if each.is_best and not (gap and base and each.trial == base.number)]
    if len(alike) > 1:
        numbers, name = listed([str(each.trial) for each in alike]), next(iter(search.objectives))
        low, high = (end(each.means[name] for each in alike) for end in (min, max))
        told = f"Trials {numbers} cannot be told apart: {name} {low:.5g} to {high:.5g} with fresh seeds."
        return told + _base_beside(search)
    if gap is not None:
        return _against_base(search, gap)
    if None in (best.values or (None,)):
        return "Every trial diverged."
    found = _best_in(search, 0)
    return f"{found[0].upper()}{found[1:]}{_settings(best)}."


def _against_base(search: SearchSummary, gap: Gap) -> str:
    """`Trial 7 beats base: loss 2.301 against 2.353 over 3 fresh seeds, a difference of −0.052 ± 0.021: lr 0.01.`"""
    (name, way), base = next(iter(search.objectives.items())), search.document.base.name
    is_better = (gap.difference < 0) == (way == "minimize")
    verb = "beats" if is_better else "is worse than"
    if not gap.is_clear:
        verb = "is not clearly better than" if is_better else "is not better than"
    places = words.decimals(gap.half_width or gap.difference)
    half = "" if gap.half_width is None else f" ± {gap.half_width:.{places}f}"
    means = f"{name} {gap.best.mean:.{places}f} against {gap.base.mean:.{places}f}"
    count = len(gap.best.values)
    seeds = f"{count} fresh seeds" if count > 1 else "a fresh seed"
    trial = next((trial for trial in search.trials if trial.number == gap.trial), None)
    difference = f"a difference of {words.signed(gap.difference, places)}{half}"
    settings = _settings(trial) if trial else ""
    return f"Trial {gap.trial} {verb} {base}: {means} over {seeds}, {difference}{settings}."


def _base_beside(search: SearchSummary) -> str:
    """The base's first objective on fresh seeds, beside that of several trials."""
    gap, name = search.against_base, next(iter(search.objectives))
    return f" The base has {name} {gap.base.mean:.5g} on fresh seeds." if gap else ""


def _best_in(search: SearchSummary, place: int) -> str:
    """`trial 2 has the best loss, 2.763 ± 0.021 over 3 fresh seeds`, for the best trials. For an objective that depends
    on the seed, only best trials with fresh seeds are considered, if there are any."""
    name, way = list(search.objectives.items())[place]
    sign = 1 if way == "minimize" else -1
    spent = [trial for trial in search.best if search.standing(trial.number)] or search.best
    best = min(search.best if name in DECLARED else spent, key=lambda trial: sign * trial.scores[place])
    text = f"trial {best.number} has the best {name}, {best.scores[place]:.5g}"
    if name in DECLARED:
        return text
    standing = search.standing(best.number)
    if standing is None:
        return f"{text} on the seeds that selected it"
    half = standing.half_widths[name]
    sure = "" if half is None else f" ± {half:.2g}"
    return f"{text}{sure} over {f'{standing.seeds} fresh seeds' if standing.seeds > 1 else 'a fresh seed'}"


def _settings(trial: TrialRecord) -> str:
    """`: lr 0.01, kv_heads 4`, each named by the last part of its path if that is unique; only a count if there are
    many."""
    if len(trial.settings) > MOST_SETTINGS:
        return f", with {len(trial.settings)} settings (in the table)"
    titles = titles_of(list(trial.settings))
    return ": " + ", ".join(f"{titles[path]} {setting_text(value)}" for path, value in trial.settings.items())


def edges(search: SearchSummary) -> list[str]:
    """Warning that the best trials all lie at an end of a setting's range, beyond which others may be better."""
    found = []
    for path in search.document.space if search.best else ():
        if not all(path in trial.distributions for trial in search.best):
            continue
        values = {trial.params[path] for trial in search.best}
        ends = search.best[0].distributions[path].attributes
        if len(values) == 1 and isinstance(ends, Range) and values <= {ends.low, ends.high}:
            found.append(f"{path} ({values.pop():g})")
    whose = "The best trial is" if len(search.best) == 1 else "All of the best trials are"
    return [f"{whose} at the end of the range of {listed(found)}: values beyond it were not tried."] if found else []


def dropped(search: SearchSummary) -> list[str]:
    """Sentence on the members of the front that fresh seeds removed from it."""
    gone = [str(number) for number in search.dropped]
    whose = "Trial" if len(gone) == 1 else "Trials"
    return (
        [f"{whose} {listed(gone)} left the front with fresh seeds: others are as good or better in every objective."]
        if gone
        else []
    )


def fresh(search: SearchSummary) -> list[str]:
    """Selection bias of the best trials on fresh seeds, and the same change for the base, which was not selected."""
    if not search.is_judged:
        return []
    if not search.fresh:
        return [
            "The best trials’ scores are optimistic, because the trials were selected by them. The option --promote 5"
            " writes a study that trains the five best with fresh seeds; this report then compares both scores."
        ]
    return [_flattered(search, name) for name in search.objectives if name not in DECLARED]


def _flattered(search: SearchSummary, name: str) -> str:
    found = selection_bias(search.fresh, name)
    rows = [each for each in search.fresh if each.objective == name]
    missing = sum(each.is_chosen and each.fresh is None for each in rows)
    gone = f" Selected trials without a score for every fresh seed: {missing}." if missing else ""
    if found is None:
        return f"{name}: no selected trial has a score for each of its fresh seeds."
    half = f" ± {found.half_width:.{words.decimals(found.mean)}f}" if found.half_width is not None else ""
    count, mean = len(found.values), signed(found.mean)
    trials = "the selected trial differs" if count == 1 else f"{count} selected trials differ"
    average = ", on average (± over trials)" if count > 1 else ""
    text = f"{name}: with fresh seeds {trials} by {mean}{half} from the search{average}."
    base = [each.difference for each in rows if not each.is_chosen and each.difference is not None]
    control = f" The base, which was not selected, differs by {signed(base[0])} between the same seeds." if base else ""
    return text + gone + control


def how(search: SearchSummary) -> str:
    document = search.document
    text = f"Sampler {document.sampler}; seeds of every trial: {', '.join(map(str, document.seeds))}."
    if document.pruner:
        text += f" Pruner {document.pruner}: a pruned trial counts for the part that was trained."
    if len(document.shares) > 1:
        text += f" Trials began with {100 * document.shares[0]:g} % of the budget; only those that used all of it are"
        text += " compared."
    return text


def counts(search: SearchSummary) -> str:
    """`60 trials: 41 finished (68 %), 19 pruned (32 %). 12 illegal proposals were skipped.`"""
    total = len(search.trials)
    if not total:
        return "No trial has finished."
    parts = [f"{count} {state} ({100 * count / total:.0f} %)" for state, count in search.states.most_common()]
    if search.diverged:
        parts.append(f"{search.diverged} of those that finished diverged")
    refused = sum(search.document.illegal.values())
    skipped = f" {refused} illegal {'proposal was' if refused == 1 else 'proposals were'} skipped." if refused else ""
    return f"{total} trials: {', '.join(parts)}.{skipped}"


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
