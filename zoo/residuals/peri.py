"""Peri-LN."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals._plain import Placed


class Peri(Placed):
    """y = x + norm₂(f(norm₁(x))), and a norm after the embedding. Kim et al. 2025, arXiv:2502.02732.

    Without the embedding norm it is `double`.
    """

    kind: Literal["peri"] = "peri"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in", "norm_out"})
    normalises_embedding: ClassVar[bool] = True
