"""Layers that have their weights in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from zoo.axis import Spec
from zoo.errors import SpecError


class Sharing(Spec):
    """All layers share `blocks` distinct blocks: fewer parameters, the same FLOPs and caches.

    `cycle`: layer i is block i mod n, a stack of n layers run again and again (looped, Universal Transformers, Dehghani
    et al. 2018, arXiv:1807.03819); `sequence`: block ⌊i n / L⌋, groups of neighbours (ALBERT, Lan et al. 2019,
    arXiv:1909.11942, whose own choice is one block for all layers). Names after Takase & Kiyono 2021, arXiv:2104.06022.
    """

    blocks: PositiveInt = 1
    """n."""
    order: Literal["cycle", "sequence"] = "cycle"

    def block_of_each(self, n_layers: int) -> tuple[int, ...]:
        """Which block each layer is."""
        if self.order == "cycle":
            return tuple(i % self.blocks for i in range(n_layers))
        return tuple(i * self.blocks // n_layers for i in range(n_layers))

    def check(self, names: Sequence[str]) -> None:
        """names: the name of each layer's block. Raise SpecError where layers that share are not alike."""
        if self.blocks > len(names):
            raise SpecError("blocks", f"there are only {len(names)} layers, not {self.blocks}")
        found: dict[int, str] = {}
        for layer, (block, name) in enumerate(zip(self.block_of_each(len(names)), names, strict=True)):
            if found.setdefault(block, name) != name:
                reason = f"layer {layer} is '{name}' and would share its weights with '{found[block]}'"
                raise SpecError("blocks", reason)
