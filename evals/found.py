"""Result of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from store.documents import JsonObject, JsonScalar, SampleRecord, Score, TaskGroup

Scores = Mapping[str, Mapping[str, Score]]
"""Scores by task and metric."""


@dataclass(frozen=True)
class Found:
    """`scores` are the numbers by which arms are compared, and `items` their values per item, for paired tests.

    `rows` are a table of everything else: records with the same keys; a record without a result has a `reason`. `about`
    applies to the whole table. `skipped` gives the reasons why tasks have no score; the next command that requests such
    a task tries again.
    """

    scores: Scores = field(default_factory=dict)
    items: Sequence[SampleRecord] = ()
    about: Mapping[str, JsonScalar] = field(default_factory=dict)
    rows: Sequence[JsonObject] = ()
    groups: Mapping[str, TaskGroup] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
