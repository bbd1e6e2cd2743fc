"""Layers that have their weights in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from zoo.axis import Spec, is_off
from zoo.errors import SpecError
from zoo.facts import Fact
from zoo.random_depth import RandomDepth
from zoo.recursion import Recursion
from zoo.site import PartCost


class Sharing(Spec):
    """All layers but the prelude's and the coda's share `blocks` distinct blocks: fewer parameters, the same FLOPs and
    caches.

    `cycle`: layer i is block i mod n, a stack of n layers run again and again (looped, Universal Transformers, Dehghani
    et al. 2018, arXiv:1807.03819); `sequence`: block ⌊i n / L⌋, groups of neighbours (ALBERT, Lan et al. 2019,
    arXiv:1909.11942, whose own choice is one block for all layers). Names after Takase & Kiyono 2021, arXiv:2104.06022.
    A loop between layers of their own is the shape of Geiping et al. 2025 (Huginn), arXiv:2502.05171, and `injection`
    its loop from a state of its own (`zoo.loop`), with `random_depth` as it is trained.
    """

    blocks: PositiveInt = 1
    """n."""
    order: Literal["cycle", "sequence"] = "cycle"
    prelude: Annotated[NonNegativeInt, Field(exclude_if=is_off)] = 0
    """First layers that share nothing."""
    coda: Annotated[NonNegativeInt, Field(exclude_if=is_off)] = 0
    """Last layers that share nothing."""
    injection: Annotated[bool, Field(exclude_if=is_off)] = False
    """Whether each turn of the loop reads what the prelude made, and the first begins with a state of its own."""
    state_std: Annotated[NonNegativeFloat, Field(exclude_if=is_off), Fact.TRAINING] = 0.0
    """Standard deviation of that state while training, √(2/5) in Huginn; 0 otherwise."""
    random_depth: Annotated[RandomDepth | None, Field(exclude_if=is_off), Fact.TRAINING] = None
    """How many turns training runs and how many of them it trains; null for all turns of the model."""
    recursion: Annotated[Recursion | None, Field(exclude_if=is_off)] = None
    """How each turn of the loop chooses the tokens that it runs on; null for all tokens in every turn."""

    def block_of_each(self, n_layers: int) -> tuple[int, ...]:
        """Which block each layer is."""
        length = n_layers - self.prelude - self.coda
        if self.order == "cycle":
            core = [i % self.blocks for i in range(length)]
        else:
            core = [i * self.blocks // length for i in range(length)]
        end = self.prelude + self.blocks
        return (*range(self.prelude), *(self.prelude + i for i in core), *range(end, end + self.coda))

    def turns(self, n_layers: int) -> range:
        """The layers with which each turn of a loop begins."""
        return range(self.prelude, n_layers - self.coda, self.blocks)

    def cost(self, d_model: int, norm: int, n_layers: int) -> PartCost:
        """Of injection, per token, and the parameters of routers. norm: parameters of one."""
        if not self.injection:
            return PartCost(len(self.turns(n_layers)) * d_model if self.recursion else 0)
        matrix = 2 * d_model * d_model
        return PartCost.of(matrix + norm * bool(self.coda), 2.0 * matrix * len(self.turns(n_layers)))

    def check(self, names: Sequence[str]) -> None:
        """names: the name of each layer's block. Raise SpecError where layers that share are not alike."""
        if self.injection and self.order != "cycle":
            raise SpecError("order", "injection is before each turn of a loop, and a sequence has none: order cycle")
        if self.state_std and not self.injection:
            raise SpecError("state_std", "the loop has a state of its own with injection only")
        if self.random_depth is not None and self.recursion is not None:
            raise SpecError("random_depth", "recursion has a router for each of its turns, whose number is fixed")
        if self.random_depth is not None and not self.injection:
            raise SpecError("random_depth", "is of a loop with a state of its own: set injection")
        left = len(names) - self.prelude - self.coda
        if self.recursion is not None:
            self._check_recursion(left)
        if self.blocks > left:
            beside = " beside prelude and coda" if left < len(names) else ""
            raise SpecError("blocks", f"there are only {max(0, left)} layers{beside}, not {self.blocks}")
        found: dict[int, str] = {}
        for layer, (block, name) in enumerate(zip(self.block_of_each(len(names)), names, strict=True)):
            if found.setdefault(block, name) != name:
                reason = f"layer {layer} is '{name}' and would share its weights with '{found[block]}'"
                raise SpecError("blocks", reason)

    def _check_recursion(self, left: int) -> None:
        """left: layers of the loop."""
        if self.order != "cycle":
            raise SpecError("order", "recursion is of the turns of a loop, and a sequence has none: order cycle")
        if self.injection:
            raise SpecError("recursion", "tokens that leave the loop have no state for injection to begin with")
        if left % self.blocks:
            raise SpecError("blocks", f"{left} layers are no whole turns of {self.blocks}, which recursion needs")
        if left == self.blocks:
            raise SpecError("blocks", f"{left} layers are one turn, of all tokens: recursion needs two at least")
