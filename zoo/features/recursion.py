"""A loop in which each turn selects a subset of the tokens of the turn before and runs on those alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block_features.depth_routing import arranged, largest
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import ChunkCache
from zoo.caching.states import StateCache
from zoo.compatibility.traits import TOKENS_ROUTED, Ground, Grounds, Operation, Operations
from zoo.features import Layers, NewCache, Runner
from zoo.init import Linear
from zoo.kernels.compiling import is_fake
from zoo.settings.axis import Spec
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, PartCost

Caches = Sequence[LayerCache | None]


class Recursion(Spec):
    """x_t ← x_t + g_t f(x)_t for the tokens that turn r of R chooses among those that turn r − 1 chose; the others
    leave the loop unchanged. g = α σ(w_r · x), x: (B, T, D); f: the loop's layers with their residuals, run on the
    chosen tokens alone, at their positions in the text. Mixture-of-Recursions with expert-choice routing, a linear
    router and a KV cache per turn, Bae et al. 2025, arXiv:2507.10524 §2.2, whose best model has unshared layers around
    the loop (`prelude` and `coda` 1). The share of tokens falls linearly, as there; α and `loss` come from a
    configuration in a public fork of the authors' code.

    In training, turn r = 0, 1, … takes the ⌊(R − r)/R · T⌋ remaining tokens of a text with the largest g, so that the
    first turn takes all. A token's choice then depends on later tokens, and the FLOPs are those declared. In evaluation
    and decoding the choice is causal: the first turn takes all tokens, later turns the remaining tokens with
    σ(w_r · x) > ½. To train this rule the objective gains `loss` times the binary cross-entropy of σ(w_r · x) with the
    training choice, averaged over the remaining tokens of each turn. Training and evaluation losses therefore rest on
    different choices, and evaluation may choose more or fewer tokens than costs declare (as for
    `zoo.block_features.depth_routing`).
    """

    needs: ClassVar[Grounds] = frozenset({Ground.CAUSAL, Ground.SINGLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = TOKENS_ROUTED | {Ground.WHOLE_STREAM}
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    alpha: PositiveFloat = 0.1
    """α: upper bound of the gate."""
    loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.001
    """Weight of the router's cross-entropy with its own training choice in the objective."""

    def cost(self, turns: int, d_model: int, context: int) -> PartCost:
        """Routers' cost per token: each router reads the tokens that the turn before it chose."""
        left = (context if number == 0 else LoopTurn(number - 1, turns).count(context) for number in range(turns))
        return PartCost.of(turns * d_model, sum(2.0 * d_model * count / context for count in left))


class LoopTurn(NamedTuple):
    """Index of a loop's turn, counted from 0, and the number of turns."""

    number: int
    turns: int

    @property
    def ratio(self) -> float:
        """Tokens of a text per token that the turn runs on."""
        return self.turns / (self.turns - self.number)

    def count(self, tokens: int) -> int:
        """Number of a text's tokens that the turn processes in training."""
        return max(1, tokens * (self.turns - self.number) // self.turns)


class LoopPass(NamedTuple):
    """Arguments that all turns of a pass share. length: tokens per text."""

    run: Layers
    length: int


class RecursiveLoop(Runner):
    """x: (B, T, D) → (B, T, D). Taps `turns.r.routed`: (B, M), which of the M remaining tokens turn r runs on."""

    name: ClassVar[str] = "recursion"
    shell: ClassVar[int] = 3

    def __init__(self, spec: Recursion, turns: range, d_model: int) -> None:
        """turns: first layer of each turn; the range's step is the number of layers per turn."""
        super().__init__()
        self.spec, self.turns = spec, turns
        self.layers = range(turns.start, turns.start + len(turns) * turns.step)
        self.routers = nn.ModuleList(Linear(d_model, 1, role="input") for _ in turns)

    def new_entries(self, new: NewCache, batch: int, dtype: torch.dtype) -> list[LayerCache]:
        return [ChunkCache([self._kept(new, 0) for _ in range(batch)], StateCache({}))]

    def _kept(self, new: NewCache, number: int) -> list[LayerCache]:
        """One row's caches for a turn: one per layer, then a `ChunkCache` for the next turn, if there is one."""
        own = [new(layer, 1) for layer in self._of(number)]
        if number + 1 == len(self.turns):
            return own
        return [*own, ChunkCache([self._kept(new, number + 1)], StateCache({}))]

    def _of(self, number: int) -> range:
        """Layers of a turn."""
        return range(self.turns[number], self.turns[number] + self.turns.step)

    def run(self, x: Tensor, step: ForwardPass, kept: Caches, run: Layers) -> Tensor:
        return self._turn(LoopPass(run, x.shape[1]), 0, x, step.text, step, kept_by(self, kept[0], ChunkCache))

    def _turn(
        self, of: LoopPass, number: int, x: Tensor, left: Tensor | None, step: ForwardPass, kept: ChunkCache | None
    ) -> Tensor:
        """This turn and the turns after it. x: (B, M, D), remaining tokens. left: (B, M), false on padding."""
        weights: Tensor = self.routers[number](x)[..., 0]
        chosen, most = self._choose(number, weights, of.length, left)
        if self.training:
            target = chosen.to(weights.dtype)
            step.losses.append(self.spec.loss * F.binary_cross_entropy_with_logits(weights, target))
        step.tap(f"turns.{number}.routed", lambda: chosen)
        which, there = arranged(chosen, most)  # (B, most) each: indices into the M tokens, and whether they are chosen
        index = which[..., None].expand(-1, -1, x.shape[-1])
        gates = (self.spec.alpha * weights.gather(1, which).sigmoid()).masked_fill(~there, 0.0)[..., None]
        places = step.positions.expand(x.shape[:2]).gather(1, which)
        read = x.gather(1, index)
        if kept is None:
            out = self._deeper(of, number, read, gates, there, step.inner(most, 0, places), [None] * self.turns.step)
            return x.scatter(1, index, out)
        out = read.clone()
        for row, count in enumerate(there.sum(dim=1).tolist()):
            if count:  # row by row, since cached rows differ in their number of earlier tokens
                own = (slice(row, row + 1), slice(count))
                after = step.inner(count, kept.lengths[row], places[own])
                out[own] = self._deeper(of, number, read[own], gates[own], there[own], after, kept.rows[row])
                kept.lengths[row] += count
        return x.scatter(1, index, out)

    def _deeper(
        self, of: LoopPass, number: int, read: Tensor, gates: Tensor, there: Tensor, step: ForwardPass, kept: Caches
    ) -> Tensor:
        """read: (B, M, D), the turn's tokens → the same after this turn and the turns that some of them go on to."""
        made = of.run(self._of(number), read, step, kept[: self.turns.step])
        out = read + (gates * made).to(read.dtype)
        if number + 1 == len(self.turns):
            return out
        further = kept_by(self, kept[-1], ChunkCache)
        return self._turn(of, number + 1, out, there, step, further)

    def _choose(self, number: int, weights: Tensor, length: int, left: Tensor | None) -> tuple[Tensor, int]:
        """Mask of the tokens that a turn runs on, and the maximum number of them in a row, at least 1."""
        count = LoopTurn(number, len(self.turns)).count(length)
        if self.training:
            return largest(weights, count), count
        chosen = weights > 0 if number else torch.ones_like(weights, dtype=torch.bool)
        if left is not None:
            chosen = chosen & left
        # Fake tensors, as when memory is predicted: the expected number.
        if is_fake(chosen):
            return chosen, min(count, chosen.shape[1])
        return chosen, max(1, int(chosen.sum(dim=1).max()))
