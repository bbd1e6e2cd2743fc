"""Changes of differences with size and length, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.judge.findings.study_summary import StudySummary
from reports.judge.ladders.rungs import Axis, Change, Word
from reports.judge.sentences import listed
from reports.page.wording import words

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


def introduction(summary: StudySummary) -> str:
    """Introduction: the comparisons made, and the source of learning rates."""
    study, count = summary.study, len(summary.changes)
    rungs = listed([rung.name for rung in study.ladder[:-1]])
    over = f"corrected (Holm) over these {count} comparisons and not" if count > 1 else "not corrected"
    tests = f"paired t-test{'s' * (count > 1)}, {over} for earlier judgements of the study"
    text = (
        f"The comparison above is at {study.ladder[-1].name}. Differences from {study.baseline} there and at {rungs} "
        f"are compared seed by seed: {tests}. A difference grows if it moves away from zero, in either direction."
    )
    room = (
        "Intervals allow for what the noise of tuning may have cost at either rung."
        if _tuned_at_each_rung(summary)
        else ""
    )
    return " ".join(filter(None, [text, room, rates(summary)]))


def rates(summary: StudySummary) -> str:
    """Alternative cause of a change: learning rates that were not tuned at each rung."""
    if _tuned_at_each_rung(summary):
        return ""
    return "Learning rates were not tuned at each rung, so a change may come from them."


def _tuned_at_each_rung(summary: StudySummary) -> bool:
    return all(rung.tuning for rung in summary.study.ladder)


AXES: tuple[Axis, ...] = ("size", "length")
MOST_NAMED = 6
VERBS: dict[Word, str] = {"grows": "grows", "shrinks": "shrinks", "flips": "changes sign", "changes": "changes"}


def clauses(changes: Sequence[Change]) -> str:
    """` With length (half_length to full), the difference of double shrinks; cannot tell for post.`, one sentence per
    axis.

    Empty if nothing is judged yet.
    """
    return "".join(_clause(axis, list(_farthest(changes, axis))) for axis in AXES)


def _farthest(changes: Sequence[Change], axis: Axis) -> Iterator[Change]:
    """The change of each arm from the farthest rung along an axis; the ladder lists an axis's rungs from the farthest
    on."""
    seen = set[str]()
    for each in changes:
        if each.axis == axis and each.arm not in seen and each.word != "no verdict":
            seen.add(each.arm)
            yield each


def _clause(axis: Axis, found: Sequence[Change]) -> str:
    if not found:
        return ""
    by = {word: [each.arm for each in found if each.word == word] for word in (*VERBS, "cannot tell")}
    parts = [f"the difference of {listed(by[word])} {verb}" for word, verb in VERBS.items() if by[word]]
    if by["cannot tell"]:
        whether = "" if parts else " whether the difference changes"
        names = by["cannot tell"]
        parts.append(f"cannot tell{whether} for {listed(names) if len(names) <= MOST_NAMED else f'{len(names)} arms'}")
    return f" With {axis} ({found[0].rung} to {found[0].last}), {'; '.join(parts)}."
