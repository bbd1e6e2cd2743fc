"""Answer of a study in one sentence of at most 25 words: the best arm, its lead, its uncertainty and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from reports.judge.findings.comparison import Judgement
from reports.judge.findings.next_steps import next_steps
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import PILOT, UNDERTRAINED, UNLEARNT
from reports.judge.reading.outcomes import FAILED
from reports.judge.sentences import listed
from reports.page.wording import words
from reports.page.wording.arm_words import brief, without_shared
from reports.page.wording.cost_words import alike, all_measured, sure_changes, unknown_speed

MOST_WORDS = 25
MOST_NAMED = 3
CLEAR = 2
"""A difference below this part of its interval's half width is said to be none so far."""
LEAST = 2
"""Smallest difference of times, in per cent, that is mentioned."""
OPEN = ("inconclusive", "cannot tell")
WITHHELD = {
    PILOT: "A pilot, so no verdict",
    UNDERTRAINED: "Undertrained, so no verdict",
    UNLEARNT: "No arm learned the task",
}
"""Short forms of the reasons for missing verdicts."""


def answer(summary: StudySummary, most: int = MOST_WORDS) -> str:
    """`pre is best: double is 0.059 nats worse (0.024 to 0.094); post is 0.152 worse; post_same_rate does not train.`

    Clauses are added while there is room for `most` words, the most important first.
    """
    first = next((s.answer(summary) for s in summary.sections.values() if s.is_the_question), "")
    if first:
        return f"{first.partition('. ')[0].rstrip('.')}."
    # all effects of a design, or all arms against the baseline, by lowest loss, under short names
    names = brief([arm.name for arm in summary.arms])
    shown = (each for each in summary.judgements if summary.effects or each.base == summary.baseline)
    compared = sorted(
        (replace(each, arm=names.get(each.arm, each.arm)) for each in shown),
        key=lambda each: each.comparison.difference.mean if each.comparison.difference else math.inf,
    )
    if not compared:
        reached = words.plus_minus(summary.arms[0].loss)
        return f"A single arm, so nothing is compared: {summary.baseline} reached {reached} nats."
    apart = [each for each in summary.judgements if each not in compared and each.base != summary.baseline]
    named = [replace(each, arm=names.get(each.arm, each.arm), base=names.get(each.base, each.base)) for each in apart]
    contrasts = [] if summary.effects else _with(named, "better", "worse")
    claimed = {arm for each in summary.study.claims for arm in (each.arm, each.against)}
    if contrasts and claimed and summary.baseline not in claimed:
        clauses = list(_of_contrasts(contrasts, _with(named, "no difference"), _with(named, *OPEN)))
    else:
        clauses = list(_clauses(summary, compared, contrasts))
    lead, *others = filter(None, _with_length(summary, clauses))
    for clause in others:
        if len(f"{lead}{clause}".split()) <= most:
            lead += clause
    return f"{lead}."


def _with_length(summary: StudySummary, clauses: Sequence[str]) -> Iterator[str]:
    """The clauses, with one on undertrained arms: second if all arms are, last if only some are."""
    lead, *others = clauses
    yield lead
    too_brief = [arm.name for arm in summary.study.arms if arm.length.undertrained]
    if len(too_brief) == len(summary.study.arms):
        yield "" if summary.study.pilot else "; all arms are undertrained"
        yield from others
        return
    yield from others
    if too_brief:
        yield f"; {too_brief[0]} is undertrained" if len(too_brief) == 1 else f"; {len(too_brief)} are undertrained"


def _clauses(summary: StudySummary, compared: Sequence[Judgement], contrasts: Sequence[Judgement]) -> Iterator[str]:
    """The leading clause, then those that may follow it, the most important first. contrasts: settled comparisons that
    the study asks for beside those with the baseline; one leads where those are undecided."""
    better, worse, same = (_with(compared, verdict) for verdict in ("better", "worse", "no difference"))
    judged = bool(better or worse or same)
    failed, unsettled = _with(compared, *FAILED), _with(compared, *OPEN, *(["no verdict"] if judged else []))
    equal = [each for each in unsettled if each.comparison.rounds_to_zero]
    unsettled = [each for each in unsettled if each not in equal]
    base = brief([arm.name for arm in summary.arms])[summary.baseline]
    if better:
        lowers = f"{better[0].arm} lowers the loss by" if summary.effects else f"{better[0].arm} beats {base} by"
        yield f"{lowers} {_apart(better[0])}"
        yield _cost(better[0])
        yield _also(better[1:], "better too")
        yield _also(worse, "worse")
        yield f"; {_names(same)} {_plural(same, 'makes', 'make')} no difference" if same else ""
    elif same:
        changed = [each for each in same if _cost(each, "")]
        cost = _cost(changed[0], "") if changed else _cost(same[0], "the same")
        such = [each for each in changed if _cost(each, "") == cost]
        whose = f" for {_names(such)}" if 0 < len(such) < len(same) else ""
        within = f"{base} to within {summary.study.margin or 0:g} nats{cost}{whose}"
        yield f"{_names(same)} {_plural(same, 'matches', 'match')} {within}"
        yield _also(worse, "worse")
    elif contrasts and unsettled:
        yield from _contrast(contrasts[0], base, worse)
    elif worse and unsettled:
        none = "No factor is shown to lower the loss" if summary.effects else f"No arm is shown to beat {base}"
        yield f"{none}: {unsettled[0].arm} is undecided ({_interval(unsettled[0])})"
        yield _also(worse, "worse")
        yield _also(unsettled[1:], "undecided too")
    elif worse:
        lead = "No factor lowers the loss" if summary.effects else f"{base} is best"
        yield f"{lead}: {worse[0].arm} is {_apart(worse[0])} worse"
        yield _cost(worse[0], "")
        yield _also(worse[1:], "worse too")
    elif unsettled:
        yield from _undecided(summary, unsettled, "" if summary.effects else base)
    elif equal:
        yield f"{_names(equal)} {_plural(equal, 'computes', 'compute')} the same as {base}"
    elif len(failed) == len(compared):
        yield f"Of these arms only {base} trains" if summary.baseline_arm.seeds else "No arm trains"
    else:
        yield from _without_verdict(compared, "" if summary.effects else base)
    if 0 < len(failed) < len(compared):
        yield f"; {_names(failed)} {_plural(failed, 'does', 'do')} not train"
    if better or same:
        yield _also(unsettled, "undecided")
    if equal and (judged or unsettled):
        yield f"; {_names(equal)} {_plural(equal, 'computes', 'compute')} the same as {base}"


def _contrast(pair: Judgement, base: str, worse: Sequence[Judgement]) -> Iterator[str]:
    winner, other, at = without_shared(*_in_order(pair))
    yield f"{at and f'At {at}, '}{winner} beats {other} by {_apart(pair)}"
    yield f"; no arm is shown to beat {base}" + (" at its own settings" if at and other == base else "")
    yield _also(worse, "worse")


def _of_contrasts(
    settled: Sequence[Judgement], same: Sequence[Judgement], unsettled: Sequence[Judgement]
) -> Iterator[str]:
    """Clauses of a study that makes its claims of contrasts only, in its order."""
    lead, *others = settled
    winner, other, at = without_shared(*_in_order(lead))
    yield f"{at and f'At {at}, '}{winner} beats {other} by {_apart(lead)}"
    for each in others:
        winner, other = _in_order(each)
        yield f"; {winner} beats {other} by {_amount(each)}"
    yield from (f"; {each.arm} matches {each.base}" for each in same)
    yield from (f"; {each.arm} against {each.base} is undecided" for each in unsettled)


def _in_order(pair: Judgement) -> tuple[str, str]:
    """The better arm of a settled comparison, and the other."""
    return (pair.arm, pair.base) if pair.verdict == "better" else (pair.base, pair.arm)


def _with(compared: Sequence[Judgement], *verdicts: str) -> list[Judgement]:
    return [each for each in compared if each.verdict in verdicts]


def _cost(told: Judgement, none: str = "no measurable") -> str:
    """`; training takes 10 % longer`: the first clear change; `, at no measurable cost`; or `, with the same peak
    memory`, if some costs were not measured. Times are ratios, as in the figure."""
    costs = told.comparison.costs
    for what, speed in (("training", costs.training), ("decoding", costs.decoding)):
        if speed is not None and speed.excludes(1) and abs(change := 100 * (1 / speed.mean - 1)) >= LEAST:
            return f"; {what} takes {abs(change):.0f} % {'longer' if change > 0 else 'less time'}"
    if clear := list(sure_changes(replace(costs, training=None, decoding=None))):
        return f", {clear[0]}"
    if all_measured(costs):
        return f", at {none} cost" if none else ""
    known, unknown = alike(costs) if none else "", unknown_speed(costs)
    return (f", with {known}" + (f" ({unknown})" if unknown else "")) if known else ""


def _also(others: Sequence[Judgement], what: str) -> str:
    if len(others) == 1 and what.startswith(("better", "worse")):
        return f"; {others[0].arm} is {_amount(others[0])} {what.partition(' ')[0]}"
    return f"; {_names(others)} {_plural(others, 'is', 'are')} {what}" if others else ""


def _amount(judged: Judgement) -> str:
    """`0.059`: the size of the difference, without sign, unit and interval."""
    value = judged.comparison.difference
    assert value is not None
    return f"{abs(value.mean):.{words.decimals(value.half_width)}f}"


def _undecided(summary: StudySummary, unsettled: Sequence[Judgement], base: str) -> Iterator[str]:
    """`untied looks better by 0.03 nats; not certain yet`, and what would make it certain: `: 4 fresh seeds would
    probably tell`. base: the baseline, empty if judgements are of effects."""
    lowest = unsettled[0]
    yield f"{lowest.arm} {_looks(lowest, base)}"
    if lowest.comparison.waits_for_rates:
        yield ": its best learning rate may lie beyond those tried"
    else:
        step = next((each for each in next_steps(summary) if each.seeds), None)
        yield f": {step.seeds} fresh seeds would probably tell" if step is not None else ""
    yield _also(unsettled[1:], "undecided too")


def _looks(judged: Judgement, base: str) -> str:
    """`looks better by 0.03 nats; not certain yet`; with a difference that is small beside its interval, `is undecided
    against pre (−0.027 to +0.022 nats)`."""
    value, half = judged.comparison.difference, None
    if value is not None:
        half = value.half_width if value.half_width is not None and math.isfinite(value.half_width) else 0.0
    if value is None or half is None or not value.mean or abs(value.mean) < half / CLEAR:
        return f"is undecided{base and f' against {base}'} ({_interval(judged)})"
    size = f"{abs(value.mean):.{words.decimals(half or value.mean)}f}"
    if not base:
        return f"seems to {'lower' if value.mean < 0 else 'raise'} the loss by {size} nats; not certain yet"
    return f"looks {'better' if value.mean < 0 else 'worse'} by {size} nats; not certain yet"


def _without_verdict(compared: Sequence[Judgement], base: str) -> Iterator[str]:
    """The reason, and an estimate. base: the baseline, empty if judgements are of effects."""
    reason = next((each.withheld for each in compared if each.withheld), None) or "no verdict"
    said = WITHHELD.get(reason, reason.partition(":")[0])
    yield f"{said[0].upper()}{said[1:]}"
    known = [each for each in compared if each.comparison.difference is not None]
    equal = [each for each in known if each.comparison.rounds_to_zero]
    if others := [each for each in known if each not in equal]:
        value, which = others[0].comparison.difference, ""
        if len(known) > 1:
            is_second = base and value is not None and value.mean >= 0  # only to the baseline
            first = ", with the lowest loss" if base else f", the most favourable of {len(others)} effects"
            which = f", second to {base}" if is_second else first
        yield f"; estimate for {others[0].arm}{which}: {_interval(others[0])}"
    if equal and base:
        yield f"; {_names(equal)} {_plural(equal, 'computes', 'compute')} the same as {base}"


def _names(told: Sequence[Judgement]) -> str:
    """Up to `MOST_NAMED` names, else their number."""
    return listed([each.arm for each in told]) if len(told) <= MOST_NAMED else f"{len(told)} arms"


def _plural(told: Sequence[Judgement], one: str, several: str) -> str:
    return one if len(told) == 1 else several


def _apart(judged: Judgement) -> str:
    """`0.059 nats (0.024 to 0.094)`: the size of the difference, without its sign."""
    value = judged.comparison.difference
    assert value is not None
    digits = words.decimals(value.half_width)
    nearest = min(abs(end) for end in (value.mean, value.low or value.mean, value.high or value.mean))
    if round(nearest, digits) == 0:
        digits += 1  # an end other than zero must not read as zero
    size = f"{abs(value.mean):.{digits}f} nats"
    if value.low is None or value.high is None:
        return size
    # the interval on the side of the mean
    low, high = (value.low, value.high) if value.mean >= 0 else (-value.high, -value.low)
    shown = [words.signed(end, digits).removeprefix("+") for end in (low, high)]
    if math.isinf(high):
        return f"{size} (at least {shown[0]})"
    return f"{size} (at most {shown[1]})" if math.isinf(low) else f"{size} ({shown[0]} to {shown[1]})"


def _interval(judged: Judgement) -> str:
    """`−0.010 to +0.024 nats`."""
    value = judged.comparison.difference
    if value is None:
        return "an unknown amount"
    if value.low is None or value.high is None:
        return f"{words.signed(value.mean, 3)} nats"
    digits = words.decimals(value.half_width)
    return f"{words.signed(value.low, digits)} to {words.signed(value.high, digits)} nats"
