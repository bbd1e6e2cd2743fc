"""Traits of the parts of a model: assumptions that they need or break, and operations that they support. What is
not declared is refused."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from zoo.errors import SpecError


class Ground(Enum):
    """An assumption about how layers run, which some parts of a model need and others break. The value completes
    messages: `… needs`."""

    WHOLE_BLOCKS = "every token in every block"
    WHOLE_STREAM = "every token in the stream of every layer"
    FIXED_DEPTH = "layers that run exactly once per pass"
    PLAIN_STREAM = "layers that write a stream of (B, T, D)"
    SINGLE_STREAM = "a single stream of (B, T, D)"
    ONE_STACK = "one stack of layers"
    OWN_WEIGHTS = "layers that share no weights"
    ONE_END = "a stream that only the layers read and write"
    CAUSAL = "a causal model without an encoder"
    FULL_ROWS = "rows without padding"
    EQUAL_ROWS = "the same positions in every row"
    LOWER_LAYERS = "keys or values of other layers"
    CONTIGUOUS = "contiguous positions"
    OWN_ORDER = "positions given by the order of tokens"
    SAME_WORK = "the same computation in training and in evaluation"


Grounds = frozenset[Ground]
"""Grounds that a part needs, or that it breaks."""
NONE: Grounds = frozenset()
"""No grounds: what a part needs or breaks that does neither."""
ROWS_CHOSEN: Grounds = frozenset({Ground.FULL_ROWS, Ground.EQUAL_ROWS, Ground.LOWER_LAYERS})
"""Grounds broken by layers that run on some tokens of each text."""
TOKENS_ROUTED: Grounds = ROWS_CHOSEN | {Ground.WHOLE_BLOCKS, Ground.CONTIGUOUS, Ground.OWN_ORDER}
"""Grounds broken by layers that run on tokens selected by a router, at their positions in the text."""
ALL: Grounds = frozenset(Ground)
"""Needs and breaks of a part that declares neither."""


class Operation(Enum):
    """An operation on a model that rests on an argument or a count. Parts that this covers declare it in `supports`."""

    WIDTH_TRANSFER = "learning rates that carry over to other widths"
    WIDENING = "copies of features that leave what a model computes as it is"
    LORA = "the FLOPs that low-rank adapters spare"
    SHARDING = "weights that are sharded among devices"
    DOCUMENTS = "documents in one row that do not see each other"


Operations = frozenset[Operation]
"""Operations that a part supports."""
NO_OPERATION: Operations = frozenset()
OF_MODULES: Operations = frozenset({Operation.LORA, Operation.SHARDING})
"""Operations that depend on the modules that a part is built of: every matrix is multiplied with each token once, and
all processes run the same layers."""
OF_VALUES: Operations = frozenset({Operation.WIDTH_TRANSFER, Operation.WIDENING})
"""Operations that depend on what a part computes, so that a single setting can break them."""
BY_TOKEN: Operations = OF_MODULES | {Operation.DOCUMENTS}
"""Operations on a part that computes each token by itself, or in which tokens meet by `zoo.attend` alone, at the
positions of the pass."""
EVERY_OPERATION: Operations = BY_TOKEN | OF_VALUES
"""All operations."""
ALL_BUT_TRANSFER: Operations = OF_MODULES | {Operation.WIDENING}
"""All but width transfer, whose argument does not cover the part."""


class Claim(NamedTuple):
    """Needs and breaks of a part of a model. layers: indices of its layers; None for the model as a whole."""

    path: str
    needs: Grounds = NONE
    breaks: Grounds = NONE
    layers: Iterable[int] | None = None
    kind: str = ""
    """The kind of the part, if its path can have several."""

    def __str__(self) -> str:
        return f"{self.path} ({self.kind})" if self.kind else self.path

    def meets(self, other: Claim) -> bool:
        """Whether both concern the same layers."""
        if self.layers is None or other.layers is None:
            return True
        return not set(self.layers).isdisjoint(other.layers)


def check_claims(claims: Iterable[Claim]) -> None:
    """Raise SpecError for the first ground that one part breaks and another needs, at the path of the first."""
    every = list(claims)
    needers = [claim for claim in every if claim.needs]
    for breaker in (claim for claim in every if claim.breaks):
        for needer in needers:
            broken = breaker.breaks & needer.needs
            if broken and needer is not breaker and breaker.meets(needer):
                first = next(ground for ground in Ground if ground in broken)  # sets have no fixed order
                raise SpecError(breaker.path, f"{needer} needs {first.value}")
