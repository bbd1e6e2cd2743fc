"""A loop over shared layers that reads its input again in every turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from zoo.caching.cache import LayerCache
from zoo.features import Layers, Model, NewCache, Runner, new_norm
from zoo.features.random_depth import RandomDepth
from zoo.init import Linear
from zoo.kernels.compiling import is_fake
from zoo.site import ForwardPass

TURNS = "loop.turns"
"""Key in `ForwardPass.states` of the number of turns drawn for the pass."""


class Loop(Runner):
    """x ← layers(W [x; e]) in each turn, with e the output of the prelude; norm(x) enters the coda. Geiping et al. 2025
    (Huginn), arXiv:2502.05171 §3.2.

    x, e: (B, T, D), W: (2D, D). The initial x is drawn per token from N(0, σ²) in training and is zero otherwise. The
    paper draws it in evaluation too; cached decoding would then differ from one pass over the text. Without a coda the
    model's final norm takes the place of this norm; in the paper both are the same module.

    The number of turns follows from the model's layers, or is random in training (`zoo.features.random_depth`).
    """

    name: ClassVar[str] = "loop"
    shell: ClassVar[int] = 2
    own_streams: ClassVar[bool] = False

    def __init__(self, model: Model, turns: range, std: float, depth: RandomDepth | None) -> None:
        """turns: first layer of each turn; the range's step is the number of layers per turn. std: σ."""
        super().__init__()
        self.turns, self.std, self.depth = turns, std, depth
        self.layers = range(turns.start, turns.stop)
        self.adapter = Linear(2 * model.d_model, model.d_model, role="input")
        self.norm = new_norm(model) if turns.stop < model.n_layers else None

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer == self.turns.start:
            step.states[self.name] = x
            x = self._first(x)
        if layer in self.turns:
            return self._turn(x, step.states[self.name])
        return x if self.norm is None or layer != self.turns.stop else self.norm(x)  # what enters the coda

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        if self.takes(cached=False):
            step.states[TURNS] = self._drawn(embedded)

    def takes(self, cached: bool) -> bool:
        return self.depth is not None and self.training and not cached

    # A graph that torch compiles for one number of turns would fit no other (as in `zoo.features.chunks`).
    @_disable_dynamo
    def _drawn(self, embedded: Tensor) -> int:
        """Number of turns drawn for this pass. For fake tensors, as when memory is predicted, the expected number."""
        depth, turns = cast(RandomDepth, self.depth), len(self.turns)
        return round(depth.expected(turns)[0]) if is_fake(embedded) else depth.draw(turns)

    @_disable_dynamo
    def run(self, x: Tensor, step: ForwardPass, kept: Sequence[LayerCache | None], run: Layers) -> Tensor:
        """Run the drawn number of turns. Turns without gradients run on a copy of the step, so that what they memoise,
        such as a bias table, is not reused by turns with gradients."""
        e, x, turns = x, self._first(x), step.states[TURNS]
        trained = cast(RandomDepth, self.depth).backward or math.inf
        core = range(self.turns.start, self.turns.start + self.turns.step)
        unused: list[LayerCache | None] = [None] * len(core)
        for left in reversed(range(turns)):
            if left >= trained:
                with torch.no_grad():
                    x = run(core, self._turn(x, e), step.copy(), unused)
            else:
                x = run(core, self._turn(x, e), step, unused)
        return x

    def entries(self) -> int:
        return len(self.layers)

    def new_entries(self, new: NewCache, batch: int, dtype: torch.dtype) -> list[LayerCache]:
        return [new(layer, batch) for layer in self.layers]

    def _first(self, e: Tensor) -> Tensor:
        """Initial state x: (B, T, D)."""
        return torch.randn_like(e) * self.std if self.training and self.std else torch.zeros_like(e)

    def _turn(self, x: Tensor, e: Tensor) -> Tensor:
        """W [x; e]: input of a turn's layers."""
        return self.adapter(torch.cat((x, e), dim=-1))
