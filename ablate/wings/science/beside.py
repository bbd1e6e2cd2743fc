"""Sentences to read beside the answer of a recorded result."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ablate.wings.results import kept_signs
from ablate.wings.results.document import RecordedResult
from ablate.wings.science.counting_signs import of_result


def caveats(result: RecordedResult, names: Collection[str] = ()) -> list[str]:
    """Caveats of the result. names: if given, without those of other arms."""
    return [str(each) for each in result.caveats if not names or each.arm is None or each.arm in names]


def signs(result: RecordedResult, names: Collection[str] = ()) -> str:
    """Sentence on how often settled differences like the result's kept their sign in larger models. names: if given,
    only of these arms."""
    found = of_result(result)
    return kept_signs.sentence({name: kept for name, kept in found.items() if not names or name in names})


def beside(result: RecordedResult) -> Iterator[str]:
    """Caveats, kept signs with their limits, qualifiers and notes."""
    kept = of_result(result)
    yield from caveats(result)
    yield from filter(None, [f"{kept_signs.sentence(kept)} {kept_signs.limits(kept.values())}".strip()])
    yield from (*result.qualifiers, *result.notes)
