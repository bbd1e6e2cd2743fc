"""The handbook as a page: every claim with the cards of the studies that state it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from ablate.wings.science.cards import Card
from ablate.wings.science.handbook_claim import Answer, Grade, HandbookClaim, Literature

FILTERS: Mapping[str, tuple[str, ...]] = {
    "standing": get_args(Literature),
    "grade": get_args(Grade),
    "answer": get_args(Answer),
}
"""Filters of the page, apart from words and topics, with all their values in order."""


@dataclass(frozen=True)
class HandbookRow:
    """A claim with the cards that refer to it."""

    entry: HandbookClaim
    cards: tuple[Card, ...]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Studies that show it in their reports without stating it as a claim."""
        stating = {card.study for card in self.cards}
        return tuple(study for study in self.entry.studies if study not in stating)


def rows(handbook: Sequence[HandbookClaim], cards: Sequence[Card]) -> tuple[HandbookRow, ...]:
    stating: dict[str, list[Card]] = {}
    for card in cards:
        if card.entry:
            stating.setdefault(card.entry, []).append(card)
    return tuple(HandbookRow(entry, tuple(stating.get(entry.id, ()))) for entry in handbook)


def choices(handbook: Sequence[HandbookClaim]) -> dict[str, tuple[str, ...]]:
    """Values of each filter that occur among the claims."""
    found = {name: {getattr(entry, name) for entry in handbook} for name in FILTERS}
    used = {name: tuple(value for value in values if value in found[name]) for name, values in FILTERS.items()}
    return {"topic": tuple(dict.fromkeys(entry.topic for entry in handbook)), **used}


def answers(handbook: Sequence[HandbookClaim]) -> dict[str, int]:
    """Number of claims by the kind of test."""
    found = Counter(entry.answer for entry in handbook)
    return {answer: found[answer] for answer in get_args(Answer) if answer in found}
