"""ELU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._dense import Dense


class ELU(Dense):
    """y = W_down ELU(W_up x), with ELU(z) = z for z > 0 and e^z − 1 below. Clevert et al. 2015, arXiv:1511.07289."""

    paired_examples: ClassVar[int | None] = 0
    kind: Literal["elu"] = "elu"
    supports: ClassVar[Operations] = EVERY_OPERATION
