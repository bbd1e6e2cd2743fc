"""ReLU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._dense import Dense


class ReLU(Dense):
    """y = W_down max(0, W_up x). Vaswani et al. 2017, arXiv:1706.03762."""

    kind: Literal["relu"] = "relu"
    supports: ClassVar[Operations] = EVERY_OPERATION
