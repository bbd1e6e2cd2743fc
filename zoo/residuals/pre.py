"""Pre-norm."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals._plain import Placed


class Pre(Placed):
    """y = x + f(norm(x)). Radford et al. 2019 (GPT-2); Xiong et al. 2020, arXiv:2002.04745."""

    kind: Literal["pre"] = "pre"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in"})
