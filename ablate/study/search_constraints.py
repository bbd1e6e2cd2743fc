"""Constraints on a model before it is trained, in three forms.

block.mixer.kv_heads divides block.mixer.heads
cache_bytes(8192) <= 64 MB                       also <, >=, >, ==; either side a number, a path or a cost
parameters within 2 % of base

Costs are parameters, parameters_embedding, flops_per_token, kv_bytes_per_token and cache_bytes(context), batch 1.
A constraint on a path that a model does not have does not concern that model.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

from zoo.errors import did_you_mean

COSTS = ("parameters", "parameters_embedding", "flops_per_token", "kv_bytes_per_token")
UNITS = {"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
UNITS |= {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)")
CACHE = re.compile(r"cache_bytes\(\s*(\d+)\s*\)")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
DIVIDES = re.compile(r"(.+?)\s+divides\s+(.+)")
WITHIN = re.compile(r"(.+?)\s+within\s+(\d+(?:\.\d+)?)\s*%\s+of\s+base")
COMPARISON = re.compile(r"(.+?)\s*(<=|>=|==|<|>)\s*(.+)")

Quantity = Callable[[str], float | None]
"""A model's value at a path, or one of its costs; None if it has no such path."""


@dataclass(frozen=True)
class Term:
    """A number, or the name of a quantity."""

    text: str
    number: float | None = None

    def of(self, quantity: Quantity) -> float | None:
        return self.number if self.number is not None else quantity(self.text)


@dataclass(frozen=True)
class ParsedConstraint:
    """A constraint, parsed. `holds` takes the quantities of a model and of the base."""

    terms: tuple[Term, Term]
    test: Callable[[float, float], bool]
    of_base: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities that it is about."""
        return tuple(dict.fromkeys(term.text for term in self.terms if term.number is None))

    def holds(self, model: Quantity, base: Quantity) -> bool:
        left, right = self.terms[0].of(model), self.terms[1].of(base if self.of_base else model)
        return left is None or right is None or self.test(left, right)


def rule(text: str) -> ParsedConstraint:
    """The rule that a text states. Raises ValueError."""
    text = text.strip()
    if match := WITHIN.fullmatch(text):
        term, share = _term(match[1]), float(match[2]) / 100
        return ParsedConstraint((term, term), lambda a, b: abs(a - b) <= share * abs(b), of_base=True)
    if match := DIVIDES.fullmatch(text):
        return ParsedConstraint((_term(match[1]), _term(match[2])), lambda a, b: a != 0 and b % a == 0)
    if match := COMPARISON.fullmatch(text):
        return ParsedConstraint((_term(match[1]), _term(match[3])), COMPARE[match[2]])
    raise ValueError(
        f"'{text}' is not a constraint: write A divides B, A <= B (or >=, <, >, ==), or A within 2 % of base"
    )


def _term(text: str) -> Term:
    text = text.strip()
    if match := NUMBER.fullmatch(text):
        if match[2] not in UNITS:
            raise ValueError(f"unknown unit '{match[2]}'" + (did_you_mean(match[2], UNITS) or ": B, kB, MB, GB, MiB …"))
        return Term(text, float(match[1]) * UNITS[match[2]])
    if match := CACHE.fullmatch(text):
        return Term(f"cache_bytes({int(match[1])})")
    if PATH.fullmatch(text):
        return Term(text)
    raise ValueError(f"'{text}' is neither a number, a path nor a cost")


def _checked(text: str) -> str:
    rule(text)
    return text


Constraint = Annotated[str, AfterValidator(_checked)]
