"""Result of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.store.documents import JsonObject, JsonScalar, SampleRecord, Score, TaskGroup

Scores = Mapping[str, Mapping[str, Score]]
"""Scores by task and metric."""


@dataclass(frozen=True)
class Found:
    """`scores` are numbers that arms are compared by, and `items` what each item says of them, for paired tests.

    `rows` are a table of everything else: records with the same keys, of which one that could not be had has a
    `reason`. `about` holds for the whole table. `skipped` says why a task has no score; the next command that asks for
    it tries again.
    """

    scores: Scores = field(default_factory=dict)
    items: Sequence[SampleRecord] = ()
    about: Mapping[str, JsonScalar] = field(default_factory=dict)
    rows: Sequence[JsonObject] = ()
    groups: Mapping[str, TaskGroup] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
