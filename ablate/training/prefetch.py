"""Making the next batch while a step goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def prefetch(make: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """`make(number)` for each number, in order; while its user works on one, a thread makes the next."""
    remaining = iter(numbers)
    with ThreadPoolExecutor(1, "prefetch") as thread:
        coming = [thread.submit(make, number) for number in islice(remaining, 1)]
        for number in remaining:
            made = coming.pop().result()
            coming.append(thread.submit(make, number))
            yield made
        for last in coming:
            yield last.result()
