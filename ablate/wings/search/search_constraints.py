"""Constraints of a search, in three forms.

block.mixer.kv_heads divides block.mixer.heads
cache_bytes(8192) <= 64 MB                       also <, >=, >, ==
parameters within 2 % of base

Either side is a number, a path, a cost, or a product or quotient of these: `block.mixer.heads * 32 == d_model`.
Costs are parameters, parameters_embedding, flops_per_token, kv_bytes_per_token and cache_bytes(context), batch 1; they
are known before anything is trained. Measured quantities (loss, bits_per_byte, accuracy, peak_memory_bytes,
tokens_per_second, decode_tokens_per_second, prefill_tokens_per_second) are known only after a run: a trial beyond such
a limit is kept, and is never the best. A constraint on a path that a model does not have does not apply to that model.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from ablate.readable import NUMBER, UNITS
from zoo.errors import did_you_mean

COSTS = ("parameters", "parameters_embedding", "flops_per_token", "kv_bytes_per_token")
MEASURED = (
    "loss",
    "bits_per_byte",
    "accuracy",
    "peak_memory_bytes",
    "tokens_per_second",
    "decode_tokens_per_second",
    "prefill_tokens_per_second",
)
"""Quantities that are known only after a run."""
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CACHE = re.compile(r"cache_bytes\(\s*(\d+)\s*\)")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
OPERATOR = re.compile(r"\s*([*/])\s*")
LEAST = 1e-9
"""Smallest distance reported for a violated constraint."""
DIVIDES = re.compile(r"(.+?)\s+divides\s+(.+)")
WITHIN = re.compile(r"(.+?)\s+within\s+(\d+(?:\.\d+)?)\s*%\s+of\s+base")
COMPARISON = re.compile(r"(.+?)\s*(<=|>=|==|<|>)\s*(.+)")

Quantity = Callable[[str], float | None]
"""A model's value at a path, or one of its costs; None if it has no such path."""


@dataclass(frozen=True)
class Factor:
    """A number, or the name of a quantity, with power −1 in a denominator."""

    text: str
    number: float | None = None
    power: int = 1


@dataclass(frozen=True)
class Term:
    """Product of factors."""

    factors: tuple[Factor, ...]

    def of(self, quantity: Quantity) -> float | None:
        """Its value; None if one of its quantities is missing, or a divisor is 0."""
        values = [each.number if each.number is not None else quantity(each.text) for each in self.factors]
        known = [(value, each.power) for value, each in zip(values, self.factors, strict=True) if value is not None]
        if len(known) < len(values) or any(value == 0 and power < 0 for value, power in known):
            return None
        return math.prod(value**power for value, power in known)


@dataclass(frozen=True)
class ParsedConstraint:
    """A parsed constraint. Its methods take the quantities of a model and of the base."""

    terms: tuple[Term, Term]
    test: Callable[[float, float], bool]
    gap: Callable[[float, float], float]
    of_base: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its quantities."""
        return tuple(dict.fromkeys(f.text for term in self.terms for f in term.factors if f.number is None))

    @property
    def is_measured(self) -> bool:
        """Whether one of its quantities is known only after a run."""
        return any(name in MEASURED for name in self.names)

    def distance(self, model: Quantity, base: Quantity) -> float:
        """Distance of a model from satisfying it, relative to the limit: 0 if it does or lacks a quantity, else > 0."""
        left, right = self.terms[0].of(model), self.terms[1].of(base if self.of_base else model)
        if left is None or right is None or self.test(left, right):
            return 0.0
        return max(self.gap(left, right), LEAST)


def _relative(left: float, right: float) -> float:
    """Distance of two numbers, in units of the right one."""
    return abs(left - right) / (abs(right) or 1.0)


def _to_multiple(divisor: float, number: float) -> float:
    """Distance of a number to the nearest positive multiple of a divisor, in units of the divisor."""
    if divisor == 0:
        return 1.0
    if number < divisor:
        return (divisor - number) / divisor
    return min(number % divisor, divisor - number % divisor) / divisor


def rule(text: str) -> ParsedConstraint:
    """The parsed constraint of a text. Raises ValueError."""
    text = text.strip()
    if match := WITHIN.fullmatch(text):
        term, share = _term(match[1]), float(match[2]) / 100
        return ParsedConstraint(
            (term, term), lambda a, b: abs(a - b) <= share * abs(b), lambda a, b: _relative(a, b) - share, of_base=True
        )
    if match := DIVIDES.fullmatch(text):
        return ParsedConstraint(
            (_term(match[1]), _term(match[2])), lambda a, b: a != 0 and b > 0 and b % a == 0, _to_multiple
        )
    if match := COMPARISON.fullmatch(text):
        return ParsedConstraint((_term(match[1]), _term(match[3])), COMPARE[match[2]], _relative)
    raise ValueError(
        f"'{text}' is not a constraint: write A divides B, A <= B (or >=, <, >, ==), or A within 2 % of base"
    )


def _term(text: str) -> Term:
    first, *rest = OPERATOR.split(text.strip())
    factors = [_factor(first, 1)]
    for sign, each in zip(rest[::2], rest[1::2], strict=True):
        factors.append(_factor(each, 1 if sign == "*" else -1))
    return Term(tuple(factors))


def _factor(text: str, power: int) -> Factor:
    if match := NUMBER.fullmatch(text):
        if match[2] not in UNITS:
            raise ValueError(f"unknown unit '{match[2]}'" + (did_you_mean(match[2], UNITS) or ": B, kB, MB, GB, MiB …"))
        return Factor(text, float(match[1]) * UNITS[match[2]], power)
    if match := CACHE.fullmatch(text):
        return Factor(f"cache_bytes({int(match[1])})", power=power)
    if PATH.fullmatch(text):
        return Factor(text, power=power)
    raise ValueError(f"'{text}' is not a number, a path or a cost")


def _checked(text: str) -> str:
    rule(text)
    return text


Constraint = Annotated[str, AfterValidator(_checked)]
