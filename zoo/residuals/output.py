"""Norm of the branch's output only."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals._plain import Placed


class Output(Placed):
    """y = x + norm(f(x)). OLMo 2 (2025), arXiv:2501.00656; Swin v2, Liu et al. 2021, arXiv:2111.09883."""

    kind: Literal["output"] = "output"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_out"})
