"""Changes of differences with size and length, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.wings.ladders.rungs import Axis, Change, Word
from reports.judge.sentences import listed
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
