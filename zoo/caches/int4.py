"""Keys and values in four bits."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.caches._quantised import Quantised


class Int4(Quantised):
    """x̂ = l + s · round((x − l)/s), s = (max − l)/15, over groups of `group` features of a token's head, of which l is
    the least. |x̂ − x| ≤ s/2, and the rounding of l and s to the cache's type. After KIVI (Liu et al. 2024,
    arXiv:2402.02750), which groups keys along tokens instead."""

    bits: ClassVar[int] = 4
    kind: Literal["int4"] = "int4"
