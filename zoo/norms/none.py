"""No normalisation."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.norms import Norm


class NoNorm(Norm):
    """y = x: no normalisation."""

    kind: Literal["none"] = "none"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    normalises: ClassVar[bool] = False

    def build(self, dim: int) -> nn.Module:
        return nn.Identity()

    def parameters(self, dim: int) -> int:
        return 0
