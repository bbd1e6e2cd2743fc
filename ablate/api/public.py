"""Wrapper of the functions of `import ablate`: every mistake of a caller raises an `AblateError`.

An argument whose type contradicts its annotation is named before anything runs. A file that cannot be read or written
gives one line with its name.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, get_args

from store.errors import AblateError, ArgumentError, reason_of

P = ParamSpec("P")
R = TypeVar("R")
MOST_WHOLE = 2**63 - 1
Dtype = Literal["bfloat16", "float16", "float32"]
Device = Literal["cpu", "cuda"]


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "None": (lambda value: value is None, "None"),
    "Count": (lambda value: _is_number(value, Integral) and value >= 1, "a whole number from 1"),
    "int": (lambda value: _is_number(value, Integral), "a whole number"),
    "float": (lambda value: _is_number(value, Real), "a number"),
    "str": (lambda value: isinstance(value, str) and "\0" not in value, "text"),
    "Path": (lambda value: isinstance(value, os.PathLike) and "\0" not in os.fspath(value), "a path"),
    "Dtype": (lambda value: value in get_args(Dtype), ", ".join(get_args(Dtype))),
    "Device": (lambda value: value in get_args(Device), "cpu, cuda"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a map"),
    "Sequence": (lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping), "a list"),
    "Study": (lambda value: type(value).__name__ == "Study", "a Study"),
}
"""Checks and descriptions of the types in annotations. Functions check arguments of any other type themselves."""
ALIASES = {"StudyLike": "str | Path | Mapping | Study", "Sets": "Mapping | Sequence[str]"}


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that a caller's mistakes raise `AblateError`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        signature = inspect.signature(function)
        for name, annotation, value in _given(signature, signature.bind(*args, **kwargs)):
            parts = parts_of(annotation)
            if _is_number(value, Integral) and abs(value) > MOST_WHOLE:
                raise ArgumentError(name, f"whole numbers have at most 64 bits, not {int(value).bit_length():,}")
            if not any(_fits(part, value) for part in parts):
                raise ArgumentError(name, f"expected {_words(parts)}, not {reprlib.repr(value)}")
        try:
            return function(*args, **kwargs)
        except BrokenPipeError:  # the reader of the output has gone
            raise
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            raise AblateError(f"{place}{reason_of(error)}") from error

    return call


def _given(signature: inspect.Signature, bound: inspect.BoundArguments) -> Iterator[tuple[str, str, Any]]:
    """Name, annotation and value of every argument; those of `*args` and `**kwargs` one by one."""
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        annotation = str(parameter.annotation)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((each, annotation, of) for each, of in value.items())
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, annotation, of) for of in value)
        else:
            yield name, annotation, value


def parts_of(annotation: str) -> list[str]:
    """The types that an annotation allows, aliases expanded: `A` and `B[C | D]` for `A | B[C | D]`."""
    found = re.split(r" \| (?![^\[]*\])", annotation)
    return [each for part in found for each in (parts_of(ALIASES[part]) if part in ALIASES else [part])]


def _fits(part: str, value: Any) -> bool:
    name, _, inner = part.partition("[")
    if name not in CHECKS:
        return True
    each = value if name == "Sequence" and isinstance(value, list | tuple) else ()
    return CHECKS[name][0](value) and all(
        any(_fits(one, of) for one in parts_of(inner.removesuffix("]"))) for of in each
    )


def _words(parts: list[str]) -> str:
    """Types in words, for a message: `a whole number or None`."""
    words = []
    for part in parts:
        name, _, inner = part.partition("[")
        of = f" (of {_words(parts_of(inner.removesuffix(']')))})" if name == "Sequence" else ""
        words.append(CHECKS[name][1] + of)
    return " or ".join(words)
