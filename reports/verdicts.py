"""Verdicts on arms and outcomes of claims."""

from __future__ import annotations

from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal[
    "better",
    "worse",
    "no difference",
    "inconclusive",
    "cannot tell",
    "no verdict",
    "stalled",
    "diverged",
    "baseline",
    "not compared",
]
"""Verdict on an arm, the most informative first."""

Outcome: TypeAlias = Literal["holds", "does not hold", "cannot tell", "not tested"]
"""Outcome of a claim."""
