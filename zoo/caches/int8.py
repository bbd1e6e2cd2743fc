"""Keys and values in eight bits."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.caches._quantised import Quantised


class Int8(Quantised):
    """x̂ = l + s · round((x − l)/s), s = (max − l)/255, for each group of `group` features of a token's head, with
    minimum l. |x̂ − x| ≤ s/2, plus the rounding of l and s to the cache's dtype. After KIVI (Liu et al. 2024,
    arXiv:2402.02750), which groups keys along tokens instead."""

    bits: ClassVar[int] = 8
    kind: Literal["int8"] = "int8"
