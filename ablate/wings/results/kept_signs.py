"""How often the difference of two arms kept its sign when models grew.

`kept_signs.json` is counted from the recorded result of a study with many arms at several sizes
(`counting_signs` of the wing `science`).

At each smaller size, all pairs of arms are sorted by the amount by which they differ there and divided into `GROUPS`
groups. A group counts the pairs whose difference has the same sign at the largest size. Pairs share arms, so they are
fewer independent cases than their number says. A difference in nats means the same only on the same text in the same
vocabulary, so the counts apply to nothing else, and to models within a factor of `NEAR` of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ablate.wings.results.document import is_near
from reports.judge.findings.study_summary import StudySummary
from reports.judge.sentences import listed, prefixed
from reports.judge.verdicts import Verdict
from store.documents import JsonObject, Part

TABLE = Path(__file__).with_suffix(".json")
GROUPS = 4
KEY = "*Signs kept*: pairs of arms with as large a difference that had the same sign in larger models."


class Conditions(NamedTuple):
    """Model sizes of a study, and what its losses depend on besides."""

    parameters: tuple[float, float]
    data: str
    vocabularies: tuple[int, ...]
    unit: str


class Group(Part):
    """Pairs of arms that differ by `least` or more at the smaller size, up to the next group."""

    least: float
    pairs: int
    kept: int
    """Pairs whose difference has the same sign at the larger size."""


class Growth(Part):
    """Counts from one size to the largest, the smallest differences first."""

    parameters: float
    """Non-embedding parameters of the largest arm at the smaller size."""
    groups: tuple[Group, ...]


class KeptSigns(Part):
    """The counts, and the study that they are from."""

    study: str
    arms: int
    parameters: float
    """Non-embedding parameters of the largest arm at the largest size."""
    data: str
    vocabularies: tuple[int, ...]
    unit: str
    tokens_per_parameter: float
    """The least that a model of the study read."""
    growths: tuple[Growth, ...]


class KeptSign(NamedTuple):
    """The group of one difference, and the sizes between which it was counted."""

    group: Group
    before: float
    after: float

    def document(self) -> JsonObject:
        return {**self.group.model_dump(), "parameters_before": self.before, "parameters_after": self.after}


@cache
def table() -> KeptSigns:
    return KeptSigns.model_validate_json(TABLE.read_text(encoding="utf-8"))


def kept_sign(verdict: Verdict, difference: float | None, at: Conditions) -> KeptSign | None:
    """Counts for a settled difference, from the size nearest to its own; None for others, and where none apply."""
    known = table()
    sizes = [known.parameters, *(growth.parameters for growth in known.growths)]
    same = at[1:] == (known.data, known.vocabularies, known.unit)
    if verdict not in ("better", "worse") or difference is None or not same or not is_near(at.parameters, sizes):
        return None
    size = math.sqrt(math.prod(at.parameters))
    growth = min(known.growths, key=lambda each: abs(math.log(each.parameters / size)))
    first, *others = growth.groups
    group = next((each for each in reversed(others) if abs(difference) >= each.least), first)
    return KeptSign(group, growth.parameters, known.parameters)


def of_summary(summary: StudySummary) -> dict[str, KeptSign]:
    """Counts for each settled judgement of a study, by its arm, pair of arms or effect."""
    study, read = summary.study, summary.inputs
    at = Conditions(study.parameters, ", ".join(sorted(read.sources)), read.vocabularies, summary.unit)
    found = {}
    for each in summary.judgements:
        name = each.arm if summary.effects or each.base == summary.baseline else f"{each.arm} − {each.base}"
        difference = each.comparison.difference
        found[name] = kept_sign(each.verdict, difference.mean if difference else None, at)
    return {name: kept for name, kept in found.items() if kept}


def beside(summary: StudySummary) -> Iterator[str]:
    """The sentence on a study's differences, with its limits, to read beside the answer."""
    kept = of_summary(summary)
    yield from filter(None, [f"{sentence(kept)} {limits(kept.values())}".strip()])


def in_json(summary: StudySummary) -> dict[str, JsonObject]:
    """Fields of every arm and effect in the output of `ablate run --json`."""
    kept = {name: each.document() for name, each in of_summary(summary).items()}
    names = (*(arm.name for arm in summary.arms), *(each.effect.name for each in summary.effects))
    return {name: {"sign_kept": kept.get(name)} for name in names}


def counts(found: Mapping[str, KeptSign]) -> str:
    """`16 of 16 (lion, sgd) and 14 of 16 (muon)`; empty without any."""
    by: dict[Group, list[str]] = {}
    for name, kept in found.items():
        by.setdefault(kept.group, []).append(name)
    return listed([f"{group.kept} of {group.pairs} ({', '.join(names)})" for group, names in by.items()]) if by else ""


def short(found: Mapping[str, KeptSign]) -> str:
    """`Signs kept: 14 of 16 (post).`, which `KEY` explains; empty without any."""
    return f"Signs kept: {counts(found)}." if found else ""


def sentence(found: Mapping[str, KeptSign]) -> str:
    """`At 2.2 times the parameters, such differences kept their sign in 14 of 16 pairs of arms (post).` Empty without
    any. found: of one study, so counted between the same sizes."""
    if not found:
        return ""
    one, kept = next(iter(found.values())), counts(found).replace(" (", " pairs of arms (", 1)
    return f"At {one.after / one.before:.2g} times the parameters, such differences kept their sign in {kept}."


def limits(found: Collection[KeptSign]) -> str:
    """Where the counts come from, in a sentence; empty without any."""
    if not found:
        return ""
    known, before = table(), sorted({each.before for each in found})
    return (
        f"Counted in {known.study}: pairs of {known.arms} arms that differed as much at "
        f"{' or '.join(map(prefixed, before))} parameters, compared again at {prefixed(known.parameters)}, with "
        f"{known.tokens_per_parameter:.0f} tokens per parameter or more."
    )
