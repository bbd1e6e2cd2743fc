"""Progress of an evaluation or a measurement, sent to any listener: `tasks 120/400`.

The counting code does not know its listeners, and none are required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from store.documents.claim import Count

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
