"""SiLU (swish) feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._dense import Dense


class SiLU(Dense):
    """y = W_down (z·σ(z)), z = W_up x. Ramachandran et al. 2017, arXiv:1710.05941."""

    kind: Literal["silu"] = "silu"
    supports: ClassVar[Operations] = EVERY_OPERATION
