"""ReGLU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._dense import Gated


class ReGLU(Gated):
    """y = W_down (max(0, W_gate x) ⊙ W_up x). Shazeer 2020, arXiv:2002.05202."""

    kind: Literal["reglu"] = "reglu"
    supports: ClassVar[Operations] = EVERY_OPERATION
