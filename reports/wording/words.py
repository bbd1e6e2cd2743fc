"""Numbers and findings in words. Every number carries its unit; ± is half a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import UTC, datetime

from ablate.noise.power import MOST_SEEDS
from reports.findings.comparison import Comparison
from reports.findings.shapes import ArmSummary, StudySummary
from reports.reading.outcomes import FAILED
from reports.statistics.estimates import Estimate
from reports.statistics.interval import Interval
from reports.wording import change_words, failure_words, rate_words, table
from reports.wording.cost_words import clear_costs, costs
from reports.wording.length_words import conditions, undertrained
from reports.wording.listing import listed
from reports.wording.matching_words import but_for, continued, matched, terms

NONE = table.NONE


def score(value: float) -> str:
    """Score to four decimals, or to four digits if very large, as are perplexities of hardly trained models."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def decimals(scale: float | None, most: int = 4) -> int:
    """Decimals that show two significant digits of `scale`; three where it is not known, or infinite."""
    if not scale or math.isinf(scale):
        return 3
    return min(most, max(0, 1 - math.floor(math.log10(abs(scale)))))


def signed(value: float, digits: int) -> str:
    """`+0.012`, `−0.012`, `0.000`, `−∞`: with a true minus, and no sign on what rounds to zero."""
    text = f"{abs(value):.{digits}f}"
    sign = "" if float(text) == 0 else "+" if value > 0 else "−"
    return sign + text.replace("inf", "∞")


def plus_minus(value: Estimate | None) -> str:
    """`2.310 ± 0.012`, or the bare mean where there is no interval."""
    if value is None:
        return NONE
    if value.half_width is None:
        return f"{value.mean:.3f}"
    digits = decimals(value.half_width)
    return f"{value.mean:.{digits}f} ± {value.half_width:.{digits}f}"


def count(value: float | None) -> str:
    """`5.80 M`: three significant digits with a decimal prefix."""
    if value is None:
        return NONE
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{_three(value / scale)} {unit}"
    return _three(value)


def large(value: float | None) -> str:
    """`1.00 × 10^13` in superscripts: for FLOPs."""
    if value is None:
        return NONE
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def size(value: float | None) -> str:
    """Bytes with a binary prefix: `1.50 MiB`."""
    if value is None:
        return NONE
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f} s" if value < 1000 else f"{value:,.0f} s"


def moment(text: str) -> str:
    """`2026-01-01 00:00 UTC`, from ISO 8601."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def three_digits(value: float) -> str:
    """`0.123`, `1,234`: three digits, or all of a whole part that has more."""
    return whole(value) if value >= 100 else f"{value:.3g}"


def whole(value: float | None) -> str:
    """`12,345`."""
    return NONE if value is None else f"{value:,.0f}"


def fixed(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


CERTAIN = 0.99
"""A larger p is given as that: corrections for many comparisons raise p to 1."""


def p_value(p: float | None) -> str:
    if p is None:
        return NONE
    if p > CERTAIN:
        return f"p > {CERTAIN:g}"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _three(value: float) -> str:
    """Three significant digits without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 3)}f}"


def difference(comparison: Comparison) -> str:
    """`−0.012 ± 0.004 nats`, or `−0.012 (−0.021 to 0.000) nats` where a verdict cut the interval at zero."""
    return NONE if comparison.difference is None else interval(comparison.difference)


def interval(value: Estimate) -> str:
    """A difference in nats with its interval, of which either end may be infinite: `+0.125 (−∞ to +0.224) nats`."""
    digits = decimals(value.half_width)
    mean = signed(value.mean, digits)
    if not value.half_width or value.low is None or value.high is None:
        return f"{mean} nats"
    if math.isfinite(value.half_width) and math.isclose(value.high - value.mean, value.mean - value.low, rel_tol=1e-3):
        return f"{mean} ± {value.half_width:.{digits}f} nats"
    return f"{mean} ({signed(value.low, digits)} to {signed(value.high, digits)}) nats"


def ends(value: Interval, *, sign: bool = False) -> str:
    """`0.31 (0.22 to 0.4)`, to two digits of its width; with a plus where it has a `sign`."""
    digits = decimals(value.half_width)
    said = [signed(each, digits) for each in (value.value, value.low, value.high)]
    middle, low, high = said if sign else (each.removeprefix("+") for each in said)
    return f"{middle} ({low} to {high})"


def sentence(summary: StudySummary, arm: ArmSummary) -> str:
    """One arm's finding: difference with interval, costs, verdict and what could have been seen."""
    comparison = arm.comparison
    if comparison is None:
        spread = f"{'95 % interval over ' * (len(arm.seeds) > 1)}{_seeds(len(arm.seeds))}"
        said = f"{plus_minus(arm.loss)} nats per {summary.study.per} ({spread})" if arm.loss else ""
        own = (said or "no seed finished", answers(arm), failure_words.failed(arm))
        what = "the baseline" if arm.name == summary.baseline else "a run of the design"
        return f"{what}: {', '.join(filter(None, own))}."
    if arm.verdict in FAILED:
        return f"{failure_words.failed(arm)}."
    if comparison.difference is None:
        return f"{arm.verdict}: no seed trained in both {arm.name} and {summary.baseline}."
    measured = f"{difference(comparison)} {terms(summary, arm)}"
    parts = (measured, failure_words.where_it_trains(comparison), answers(arm), costs(comparison.costs))
    said = ", ".join(filter(None, parts))
    ground = f": {arm.withheld}." if arm.withheld else _ground(summary, arm, comparison)
    return f"{said}; {arm.verdict}{ground}"


def answers(arm: ArmSummary) -> str:
    """`accuracy 0.982 ± 0.011, 0.031 ± 0.004 nats above the floor`; nothing of text, which has neither."""
    accuracy = f"accuracy {plus_minus(arm.accuracy)}" if arm.accuracy else ""
    excess = f"{plus_minus(arm.excess)} nats above the floor" if arm.excess else ""
    return ", ".join(filter(None, [accuracy, excess]))


def _ground(summary: StudySummary, arm: ArmSummary, comparison: Comparison) -> str:
    """Why the verdict is what it is."""
    pairs = _seeds(len(comparison.seeds))
    if arm.verdict == "cannot tell":
        if len(comparison.seeds) == 1:
            return f" with {pairs}."
        return f": all {pairs} give the same difference, so they are not independent."
    tested = f"{pairs}, {p_value(comparison.p_holm)}"
    if arm.verdict == "no difference":
        return f" larger than {summary.study.margin:g} nats ({pairs}, {p_value(comparison.p_equivalence)})."
    if arm.verdict != "inconclusive":
        return f" ({tested})."
    if comparison.shows_difference or comparison.shows_no_difference:
        return f" ({tested}), because {failure_words.because(summary, arm)}."
    return f" ({tested}): {_open(summary, arm, comparison)}"


def _open(summary: StudySummary, arm: ArmSummary, comparison: Comparison) -> str:
    """Sentence on an inconclusive comparison: values excluded, difference detectable, seeds that would settle it."""
    value, smallest = comparison.difference, comparison.detectable
    assert value is not None  # an inconclusive arm has a p
    if smallest is None:
        return f"{_excluded(value)}, since {rate_words.beyond(summary.study)}."
    planned = f"; {more_seeds(arm.seeds_needed)}" if arm.seeds_needed is not None else ""
    seen = f"could detect {detectable(smallest)} nats with 80 % power"
    return f"{_excluded(value)}; {seen}{planned}."


def _excluded(value: Estimate) -> str:
    assert value.low is not None
    assert value.high is not None
    known = [end for end in (value.low, value.high) if math.isfinite(end)]
    if len(known) == 2:
        return f"excludes differences larger than {nats(max(map(abs, known)))}"
    if not known:
        return "excludes nothing"
    side = "below" if math.isfinite(value.low) else "above"
    return f"excludes only differences {side} {signed(known[0], decimals(known[0]))} nats"


def detectable(found: Interval) -> str:
    """`0.036 (0.019 to 0.23)`: what a study could see, and how well that is known."""
    value, low, high = (f"{each:.{decimals(each)}f}" for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def more_seeds(needed: int | None) -> str:
    if needed is None:
        return f"even {MOST_SEEDS:,} more seeds would probably not settle it"
    return f"{needed} more seed{'' if needed == 1 else 's'} would probably settle it"


def verdict(summary: StudySummary, arm: ArmSummary) -> str:
    """For a table: `inconclusive (+11 seeds)` where so many would probably settle it, `no difference > 0.01`."""
    if arm.verdict == "no difference":
        return f"no difference > {summary.study.margin:g}"
    return f"{arm.verdict} (+{_seeds(arm.seeds_needed)})" if arm.seeds_needed else arm.verdict


def nats(value: float) -> str:
    return f"{value:.{decimals(value)}f} nats"


def _seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"


FEW = 3
"""Most arms with one verdict that the headline gives numbers for; with more, only the best has them."""
MOST_NAMED = 6
"""Most arms with one verdict that the headline names; with more, it names the best and counts the others."""


def headline(summary: StudySummary) -> str:
    """The answer to the study's question, as far as it can be told, with what was matched and its conditions."""
    by: dict[str, list[ArmSummary]] = {}
    for arm in summary.arms:
        by.setdefault(arm.verdict, []).append(arm)
    base = summary.baseline
    margin = f"larger than {summary.study.margin or 0:g} nats"
    clauses = (
        ("better", f"reached a lower loss than {base}", ""),
        ("worse", f"reached a higher loss than {base}", ""),
        ("stalled", "stalled near the loss of a unigram model", ""),
        ("diverged", "diverged", ""),
        ("no difference", f"shows no difference from {base} {margin}", f"show no difference from {base} {margin}"),
        ("inconclusive", f"is inconclusive against {base}", f"are inconclusive against {base}"),
        ("cannot tell", f"cannot be compared with {base}", ""),
        ("no verdict", "has no verdict", "have no verdict"),
    )
    parts = [
        f"{_named(summary, by[verdict])} {several if several and len(by[verdict]) > 1 else one}"
        for verdict, one, several in clauses
        if verdict in by
    ]
    if not parts:
        reached = f"{base} reached {plus_minus(summary.arms[0].loss)} nats per {summary.study.per}"
        return f"The study has a single arm, so nothing is compared: {reached}."
    under = continued(summary) or f"{matched(summary)}{but_for(summary)}"
    answer = f"{under[0].upper()}{under[1:]}, {'; '.join(parts)}"
    where = f" ({conditions(summary.study)})"
    qualified = f"{failure_words.left_out(summary)}{undertrained(summary.study)}"
    first = "".join(f"{section.answer(summary)} " for section in summary.sections.values() if section.is_the_question)
    others = (section.answer(summary) for section in summary.sections.values() if not section.is_the_question)
    last = "".join(f" {said}" for said in others if said)
    return f"{first}{answer}{where}.{qualified}{change_words.clauses(summary.changes)}{last}"


def _named(summary: StudySummary, arms: list[ArmSummary]) -> str:
    """The arms, with differences in brackets, of a few or of the best of many; and with costs where they decide."""
    told = arms if len(arms) <= FEW else [min(arms, key=_mean_difference)]
    named = arms if len(arms) <= MOST_NAMED else told
    others = [f"{len(arms) - len(named)} others"] if len(named) < len(arms) else []
    return listed([*(_bracketed(summary, arm) if arm in told else arm.name for arm in named), *others])


def _mean_difference(arm: ArmSummary) -> float:
    found = arm.comparison
    return found.difference.mean if found is not None and found.difference is not None else 0.0


def _bracketed(summary: StudySummary, arm: ArmSummary) -> str:
    found = arm.comparison
    if found is None or found.difference is None:
        return arm.name
    decide = arm.verdict in ("better", "worse") or len(summary.arms) == 2
    said = difference(found).replace(" (", " [").replace(")", "]")  # in round brackets already
    return f"{arm.name} ({', '.join(filter(None, [said, clear_costs(found.costs) if decide else '']))})"


def in_groups(tasks: Collection[str]) -> str:
    """Note that tasks of groups are only in the table."""
    return f" The {len(tasks)} tasks of groups are in the table only." if tasks else ""
