"""Squared ReLU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._dense import Dense


class SquaredReLU(Dense):
    """y = W_down max(0, W_up x)². So et al. 2021 (Primer), arXiv:2109.08668; Nemotron-4, arXiv:2402.16819."""

    kind: Literal["relu2"] = "relu2"
    supports: ClassVar[Operations] = EVERY_OPERATION
