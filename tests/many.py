"""Many cases: in one test, since even tests that are not run take time to collect, or a few of them by default."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def few(cases: Iterable[Any], count: int) -> list[Any]:
    """Cases of a parametrised test that go through the same code: `count` of them, evenly spaced, are tried by default,
    all of them in the slow suite."""
    every = list(cases)
    assert not any(isinstance(case, type(pytest.param())) for case in every), "marks and ids would be lost"
    tried = {number * len(every) // count for number in range(count)}
    slow = pytest.mark.slow
    return [case if number in tried else pytest.param(case, marks=slow) for number, case in enumerate(every)]


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


def over(cases: Iterable[Any]) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but all cases in one test. They are its first arguments, several if a case is a
    tuple; the others are fixtures, which the cases share."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]

    def decorated(test: Callable[..., object]) -> Callable[..., None]:
        def tested(**fixtures: object) -> None:
            assert every, "no cases"
            assert_all(lambda case: test(*case, **fixtures), every)

        functools.update_wrapper(tested, test)
        shared = list(inspect.signature(test).parameters.values())[len(every[0]) :]
        tested.__signature__ = inspect.Signature(shared)  # type: ignore[attr-defined]
        return tested

    return decorated
