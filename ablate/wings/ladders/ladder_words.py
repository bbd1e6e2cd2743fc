"""Findings of a ladder in words: changes of differences with size and length, and differences as effective compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ablate.wings.ladders.effective_compute import Budget, worth
from ablate.wings.ladders.laws import LadderArm, SpeedUp, budgets
from ablate.wings.ladders.rungs import Axis, Change, Word
from reports.judge.reading.collected import Collected
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate, Interval
from reports.judge.verdicts import ALPHA
from reports.page.wording import words
from store.documents import StudyDocument

MOST_OPEN = 6
"""Most undecided changes that are listed one by one; beyond that, only their number is given."""


def sentences(changes: Sequence[Change]) -> Iterator[str]:
    """One sentence per change; undecided changes share one line if they are many."""
    unknown = [each for each in changes if each.word == "cannot tell"]
    many = len(unknown) > MOST_OPEN
    yield from (sentence(each) for each in changes if not (many and each.word == "cannot tell"))
    if many:
        yield (
            f"For {len(unknown)} of {len(changes)} comparisons with {changes[0].last}, "
            "cannot tell whether the difference changes."
        )


def sentence(found: Change) -> str:
    """`double: the difference shrinks with length: −0.036 at half_length, −0.003 at full (change +0.033 ± 0.02 …).`"""
    said = f"{found.arm}: {_said(found)}"
    if found.change is None or found.before is None or found.after is None:
        rungs = f"{found.rung} and {found.last}"
        return f"{said} between {rungs}: {found.reason or 'no seed finished at both'}."
    digits = max(2, words.decimals(found.change.half_width))
    before, after = (words.signed(each.mean, digits) for each in (found.before, found.after))
    count = len(found.change.values)
    p = words.p_value(found.p) if found.p is not None else ""
    ground = (f"change {words.interval(found.change)}", words.seed_count(count), p, found.reason)
    return f"{said}: {before} at {found.rung}, {after} at {found.last} ({', '.join(filter(None, ground))})."


def _said(found: Change) -> str:
    if found.word == "no verdict":
        return f"no verdict on {found.axis}"
    if found.word == "cannot tell":
        return f"cannot tell whether the difference changes with {found.axis}"
    return f"the difference {VERBS[found.word]} with {found.axis}"


def introduction(study: StudyDocument, count: int) -> str:
    """Introduction: the comparisons made, so many, and the source of learning rates."""
    rungs = listed([rung.name for rung in study.ladder[:-1]])
    over = f"corrected (Holm) over these {count} comparisons and not" if count > 1 else "not corrected"
    tests = f"paired t-test{'s' * (count > 1)}, {over} for earlier judgements of the study"
    text = (
        f"The comparison above is at {study.ladder[-1].name}. Differences from {study.baseline} there and at {rungs} "
        f"are compared seed by seed: {tests}. A difference grows if it moves away from zero, in either direction."
    )
    room = (
        "Intervals allow for what the noise of tuning may have cost at either rung."
        if _tuned_at_each_rung(study)
        else ""
    )
    return " ".join(filter(None, [text, room, rates(study)]))


def rates(study: StudyDocument) -> str:
    """Alternative cause of a change: learning rates that were not tuned at each rung."""
    if _tuned_at_each_rung(study):
        return ""
    return "Learning rates were not tuned at each rung, so a change may come from them."


def _tuned_at_each_rung(study: StudyDocument) -> bool:
    return all(rung.tuning for rung in study.ladder)


AXES: tuple[Axis, ...] = ("size", "length")
MOST_NAMED = 6
MOST_SIZED = 3
"""Most arms with one verdict whose differences are given."""
VERBS: dict[Word, str] = {"grows": "grows", "shrinks": "shrinks", "flips": "changes sign", "changes": "changes"}


def clauses(changes: Sequence[Change]) -> str:
    """`With size (s to l), the difference of double shrinks from +0.08 to +0.03; cannot tell for post.`

    One sentence per axis; empty if nothing is judged yet, or if all is open.
    """
    said = []
    for axis in AXES:
        farthest: dict[str, Change] = {}  # of each arm: the ladder lists an axis's rungs from the farthest on
        for each in changes:
            if each.axis == axis and each.word != "no verdict":
                farthest.setdefault(each.arm, each)
        said.append(_clause(axis, list(farthest.values())))
    return " ".join(filter(None, said))


def _clause(axis: Axis, found: Sequence[Change]) -> str:
    if not found:
        return ""
    rungs = f"{axis} ({found[0].rung} to {found[0].last})"
    by = {word: [each for each in found if each.word == word] for word in (*VERBS, "cannot tell")}
    parts = [f"the difference of {_named(by[word], verb)}" for word, verb in VERBS.items() if by[word]]
    names = [each.arm for each in by["cannot tell"]]
    if not parts:
        # Only an open trend of one arm has its numbers here; those of several are in the figure of the rungs.
        ends = ", then ".join(_ends(found[0])) if len(found) == 1 else ""
        return f"Whether the difference of {names[0]} changes with {rungs} is open ({ends})." if ends else ""
    if names:
        parts.append(f"cannot tell for {listed(names) if len(names) <= MOST_NAMED else f'{len(names)} arms'}")
    return f"With {rungs}, {'; '.join(parts)}."


def _named(found: Sequence[Change], verb: str) -> str:
    """`double shrinks from +0.08 to +0.03`, `double and post shrinks`: names beyond `MOST_SIZED` without numbers."""
    if len(found) > MOST_SIZED:
        return f"{listed([each.arm for each in found])} {verb}"
    return listed([f"{each.arm} {verb} from {' to '.join(_ends(each))}" for each in found])


def _ends(found: Change) -> list[str]:
    """`+0.08`, `+0.03`: the differences at both rungs, over the same seeds; empty if unknown."""
    if found.before is None or found.after is None or found.change is None:
        return []
    digits = min(3, max(2, words.decimals(found.change.half_width)))
    return [words.signed(each.mean, digits) for each in (found.before, found.after)]


# Differences in loss as effective compute: read off the curve of the baseline, where it has two budgets or more. Pure.
#
#     f = C_base(L_base + d) / C_arm
#
# for the difference d at the last rung and for both ends of its interval, so that f excludes 1 where d excludes zero
# (at equal compute). The ends have room for what a few budgets leave open of the curve. Sizes are preferred to lengths.

NATS = 0.01


@dataclass(frozen=True)
class Worth:
    """Effective compute of each arm at the last rung, and what `NATS` of the baseline's `loss` are worth there."""

    axis: Axis
    loss: float
    nats: Interval
    arms: Mapping[str, Interval]


def study_worth(data: Collected, differences: Mapping[str, Estimate | None]) -> Worth | None:
    """Worth of differences from the baseline, by arm. None unless the baseline has finished runs at two sizes or
    two lengths, and its loss falls between them."""
    baseline = data.study.baseline
    base_flops = data.study.baseline_arm.flops
    for axis in ("size", "length"):
        runs = data.rungs.filter(pl.col("axis").fill_null(axis) == axis, pl.col("arm") == baseline)
        curve = sorted((each for each in budgets(runs).get(baseline, []) if each.losses), key=lambda each: each.flops)
        conversion = worth(curve, NATS) if curve and curve[-1].name == data.study.ladder[-1].name else None
        if conversion is not None:
            factors = {
                arm.name: _read_off(curve, difference, base_flops / arm.flops)
                for arm in data.study.arms
                if (difference := differences.get(arm.name))
            }
            return Worth(axis, curve[-1].mean, conversion, factors)
    return None


def _read_off(curve: Sequence[Budget], difference: Estimate, times: float) -> Interval:
    """Effective compute for a difference from the last loss of a curve. times: the curve's compute over the arm's."""
    ends = [math.inf if nats is None or math.isinf(nats) else nats for nats in (difference.low, difference.high)]
    found = worth(curve, -difference.mean)
    least, most = (worth(curve, -end) if math.isfinite(end) else None for end in reversed(ends))
    assert found is not None  # a curve has a worth
    low, high = least.low if least else 0.0, most.high if most else math.inf
    return Interval(found.value * times, low * times, high * times)


def law_sentence(arm: LadderArm) -> str:
    """`post: loss falls towards 1.71 (1.52 to 1.80) as compute to the power −0.31 (−0.4 to −0.2); the difference …`"""
    said = [arm.undetermined] if arm.undetermined else []
    if arm.law is not None:
        floor, b = words.ends(arm.law.irreducible), arm.law.exponent
        power = words.ends(Interval(-b.value, -b.high, -b.low))
        said = [f"loss falls towards {floor} as compute to the power {power}"]
    if arm.trend is not None:
        by = f"{words.ends(arm.trend.slope, sign=True)} nats per tenfold compute, {words.p_value(arm.trend.p)}"
        unsure = "" if arm.trend.p < ALPHA else "cannot tell whether "
        said.append(f"{unsure}its difference from the baseline has a trend over sizes ({by})")
    if arm.speed_up is not None:
        said.append(_worth(arm.speed_up))
    return f"{arm.arm}: {'; '.join(said) or 'too few finished runs'}."


def _worth(worth: SpeedUp) -> str:
    text = f"over {worth.compute.budgets} sizes its effective compute is {words.times(worth.compute_factor)}"
    if worth.compute.trend and worth.compute.changes:
        text += f", which {worth.compute.changes} with size ({words.p_value(worth.compute.trend[1])})"
    if worth.effective is None or worth.throughput_ratio is None:
        return text
    speed = f"and it runs at {worth.throughput_ratio:.2f}× the FLOP/s"
    return f"{text}, {speed}: an effective speed-up of {words.times(worth.effective)}"


def conversion(worth: Worth | None) -> Iterator[str]:
    """`At a loss of 3.30, 0.01 nats are worth 6.9 % of compute (6.4 to 7.4 %), by pre's own curve over sizes.`"""
    if worth is not None:
        share, low, high = (100 * (each - 1) for each in (worth.nats.value, worth.nats.low, worth.nats.high))
        yield (
            f"Effective compute (×) is each difference read off the baseline's own curve over {worth.axis}s: at its "
            f"loss of {worth.loss:.2f}, {NATS} nats are worth {share:.2g} % of compute ({low:.2g} to "
            f"{high:.2g} %)."
        )
