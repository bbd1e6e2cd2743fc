"""Post-norm."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.residuals._plain import Placed


class Post(Placed):
    """y = norm(x + f(x)). Vaswani et al. 2017, arXiv:1706.03762."""

    kind: Literal["post"] = "post"
    places: ClassVar[frozenset[str]] = frozenset({"norm_after"})
    normalises_stream: ClassVar[bool] = True
    additive: ClassVar[bool] = False
