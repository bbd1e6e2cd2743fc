"""Many cases in one test, since even tests that are not run take time to collect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def assert_all(check: Callable[[Case], object], cases: Iterable[Case]) -> None:
    """Run a check on every case. The message names all that fail."""
    failed = []
    for case in cases:
        try:
            check(case)
        except Exception as error:  # whatever a test may raise
            failed.append(f"{case}: {error!r}")
    assert not failed, "\n".join(failed)
