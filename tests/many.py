"""Many cases in one test, since even tests that are not run take time to collect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def assert_all(check: Callable[[Case], object], cases: Iterable[Case]) -> None:
    """Run a check on every case. Raises the errors of all that fail, each with a note that names its case."""
    errors = []
    for case in cases:
        try:
            check(case)
        except Exception as error:  # whatever a test may raise
            error.add_note(f"case: {case}")
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} cases fail", errors)
