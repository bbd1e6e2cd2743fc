"""Layers that share weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from zoo.compatibility.traits import EVERY_OPERATION, NONE, OF_MODULES, Claim, Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model, norm_parameters
from zoo.features.injection import Loop
from zoo.features.random_depth import RandomDepth
from zoo.features.recursion import LoopTurn, Recursion, RecursiveLoop
from zoo.settings.axis import is_off
from zoo.settings.edits import SpecJson
from zoo.settings.field_tags import Fact, Supports
from zoo.site import PartCost, matmul_cost

INJECTION: Grounds = frozenset({Ground.SINGLE_STREAM, Ground.ONE_STACK})
"""Grounds needed by a loop whose turns read the prelude's output."""


class Sharing(Feature):
    """All layers but the prelude's and the coda's share `blocks` distinct blocks: fewer parameters, the same FLOPs and
    caches.

    `cycle`: layer i is block i mod n, so that a stack of n layers is looped (Universal Transformers, Dehghani et al.
    2018, arXiv:1807.03819); `sequence`: block ⌊i n / L⌋, groups of neighbouring layers (ALBERT, Lan et al. 2019,
    arXiv:1909.11942, which uses one block for all layers). i counts from the prelude's end, L without prelude and coda.
    Names after Takase & Kiyono 2021, arXiv:2104.06022. A loop between unshared layers is the architecture of Geiping et
    al. 2025 (Huginn), arXiv:2502.05171; `injection` adds its initial state (`zoo.features.injection`), `random_depth`
    its training.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = frozenset({Ground.OWN_WEIGHTS})
    # Shared weights get the sum of their layers' gradients, which differs by a constant factor at most.
    supports: ClassVar[Operations] = EVERY_OPERATION

    blocks: PositiveInt = 1
    """n: number of distinct blocks between prelude and coda."""
    order: Literal["cycle", "sequence"] = "cycle"
    """Order of the shared blocks: `cycle`, 1 2 3 1 2 3; `sequence`, 1 1 2 2 3 3."""
    prelude: Annotated[NonNegativeInt, Field(exclude_if=is_off), Supports(*EVERY_OPERATION)] = 0
    """Number of first layers that share no weights."""
    coda: Annotated[NonNegativeInt, Field(exclude_if=is_off), Supports(*EVERY_OPERATION)] = 0
    """Number of last layers that share no weights."""
    injection: Annotated[bool, Field(exclude_if=is_off), Supports(Operation.SHARDING)] = False
    """Whether each turn of the loop also reads the prelude's output, and the loop starts from a state of its own."""
    state_std: Annotated[NonNegativeFloat, Field(exclude_if=is_off), Fact.TRAINING, Supports(*OF_MODULES)] = 0.0
    """Standard deviation of the initial state in training, √(2/5) in Huginn; in evaluation the state is zero."""
    random_depth: Annotated[RandomDepth | None, Field(exclude_if=is_off), Fact.TRAINING] = None
    """Random number of turns in training, and how many of them have gradients; null for all turns of the model."""
    recursion: Annotated[Recursion | None, Field(exclude_if=is_off)] = None
    """Routing of tokens to turns of the loop; null for all tokens in every turn."""

    @property
    def has_norms(self) -> bool:
        return self.injection

    def block_of_each(self, n_layers: int) -> tuple[int, ...]:
        """Block index of each layer."""
        length = n_layers - self.prelude - self.coda
        if self.order == "cycle":
            core = [i % self.blocks for i in range(length)]
        else:
            core = [i * self.blocks // length for i in range(length)]
        end = self.prelude + self.blocks
        return (*range(self.prelude), *(self.prelude + i for i in core), *range(end, end + self.coda))

    def turns(self, n_layers: int) -> range:
        """First layer of each turn of a loop."""
        return range(self.prelude, n_layers - self.coda, self.blocks)

    def claims(self, path: str, model: Model) -> Iterator[Claim]:
        yield Claim(path, self.needs, self.breaks)
        if self.injection:
            yield Claim(f"{path}.injection", needs=INJECTION)
        if self.random_depth is not None:
            yield Claim(f"{path}.random_depth", self.random_depth.needs, self.random_depth.breaks)
        if self.recursion is not None:
            turns, where = self.turns(model.n_layers), f"{path}.recursion"
            yield Claim(where, needs=self.recursion.needs)
            yield Claim(where, breaks=self.recursion.breaks, layers=range(turns.start, turns.stop))

    def build(self, model: Model) -> FeatureLayer | None:
        turns = self.turns(model.n_layers)
        if self.injection:
            return Loop(model, turns, self.state_std, self.random_depth)
        return None if self.recursion is None else RecursiveLoop(self.recursion, turns, model.d_model)

    def cost(self, model: Model, context: int) -> PartCost:
        turns, d_model = len(self.turns(model.n_layers)), model.d_model
        if self.injection:
            matrix = 2 * d_model * d_model
            return PartCost.of(matrix + norm_parameters(model) * bool(self.coda), 2.0 * matrix * turns)
        return PartCost(0) if self.recursion is None else self.recursion.cost(turns, d_model, context)

    def training_cost(self, model: Model, context: int, memory: int) -> PartCost:
        """Change of the cost by a random number of turns, some without a backward pass."""
        if self.random_depth is None:
            return PartCost(0)
        turns = self.turns(model.n_layers)
        turn = matmul_cost(0, 2 * model.d_model * model.d_model)  # the adapter
        for layer in model.layers[turns.start : turns.start + self.blocks]:
            turn += layer.cost(model.d_model, context, memory)
        forward, backward = self.random_depth.expected(len(turns))
        # A third of what a step costs beyond all turns forward and backward, which is twice a forward's cost.
        change = turn.for_share((forward + 2 * backward) / 3 - len(turns))
        return PartCost(0, change.flops, change.flops_square, change.flops_executed)

    def subset(self, model: Model, layer: int) -> LoopTurn | None:
        if self.recursion is None:
            return None
        turns, at = self.turns(model.n_layers), layer - self.prelude
        return LoopTurn(at // self.blocks, len(turns)) if 0 <= at < len(turns) * self.blocks else None

    def least_layers(self, first: int, alike: bool) -> int:
        if alike:
            return min(1, self.prelude) + 2 + min(1, self.coda)
        return self.prelude + 2 * self.blocks + self.coda

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        """If all layers are of one kind: a loop over one layer, run twice, with at most one layer before and after."""
        if not alike:
            return self.model_dump()
        depth = self.random_depth and self.random_depth.model_copy(update={"mean": None, "backward": 1})
        ends = {"prelude": min(1, self.prelude), "coda": min(1, self.coda)}
        return self.model_copy(update={"blocks": 1, **ends, "random_depth": depth}).model_dump()

    def check(self, model: Model) -> None:
        """Raise SpecError if layers that share a block differ, or if they form no whole turns of a loop."""
        names = model.layer_names
        if self.injection and self.order != "cycle":
            raise SpecError("order", "must be cycle with injection")
        if self.state_std and not self.injection:
            raise SpecError("state_std", "needs injection: true")
        if self.random_depth is not None and self.recursion is not None:
            raise SpecError("random_depth", "cannot be combined with recursion, which has one router per turn")
        if self.random_depth is not None and not self.injection:
            raise SpecError("random_depth", "needs injection: true")
        left = len(names) - self.prelude - self.coda
        if self.recursion is not None:
            self._check_recursion(left)
        if self.blocks > left:
            between = " between prelude and coda" if left < len(names) else ""
            raise SpecError("blocks", f"{self.blocks} is more than the {max(0, left)} layers{between}")
        if self.random_depth is not None and left % self.blocks:
            raise SpecError(
                "blocks", f"{left} layers are not a multiple of blocks = {self.blocks}, as random_depth needs"
            )
        found: dict[int, str] = {}
        for layer, (block, name) in enumerate(zip(self.block_of_each(len(names)), names, strict=True)):
            if found.setdefault(block, name) != name:
                reason = f"layer {layer} is '{name}' and cannot share weights with '{found[block]}'"
                raise SpecError("blocks", reason)

    def _check_recursion(self, left: int) -> None:
        """left: number of layers in the loop."""
        if self.order != "cycle":
            raise SpecError("order", "must be cycle with recursion")
        if self.injection:
            raise SpecError("recursion", "cannot be combined with injection")
        if left % self.blocks:
            raise SpecError("blocks", f"{left} layers are not a multiple of blocks = {self.blocks}, as recursion needs")
        if left == self.blocks:
            raise SpecError("blocks", f"{left} layers are a single turn: recursion needs at least two turns")
