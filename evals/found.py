"""Reports of an evaluation: its result, and its progress meanwhile, sent to any listener: `tasks 120/400`. No torch.

The counting code does not know its listeners, and none are required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from store.documents import JsonObject, JsonScalar, SampleRecord, Score, TaskGroup
from store.documents.run import Count

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


def skipped_lines(skipped: Mapping[str, str], groups: Mapping[str, TaskGroup]) -> Iterator[str]:
    """One line for each skipped task, with the reason; several skipped tasks of a group share one line."""
    left = dict(skipped)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1].missing)):  # the outer before the inner
        missing = [task for task in group.missing if task in left]
        if len(missing) > 1:
            size = len(missing) + len(group.tasks)
            yield f"{name}: {len(missing)} of {size} tasks are skipped; {missing[0]}: {left[missing[0]]}"
            left = {task: reason for task, reason in left.items() if task not in missing}
    yield from (f"{task} is skipped: {reason}" for task, reason in left.items())


Listener = Callable[[Count], None]
Item = TypeVar("Item")

_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
_WHAT: ContextVar[str] = ContextVar("what", default="items")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send `listener` every count in the block; existing listeners still get them."""
    token = _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


@contextmanager
def counting(what: str) -> Iterator[None]:
    """Name the items that are counted in the block."""
    token = _WHAT.set(what)
    try:
        yield
    finally:
        _WHAT.reset(token)


def count(done: int, total: int) -> None:
    """Report that `done` of `total` items are done."""
    found = Count(what=_WHAT.get(), done=done, total=total)
    for listener in _LISTENERS.get():
        listener(found)


def counted(items: Sequence[Item]) -> Iterator[Item]:
    """Yield each item, and report it as done when the next one is requested."""
    for number, item in enumerate(items, 1):
        yield item
        count(number, len(items))
