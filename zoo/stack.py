"""A stack of blocks with what is around it: absolute positions, the norm of the embedding and the final norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from zoo.altup import AltUpStreams
from zoo.block import Block
from zoo.cache import Cache, LayerCache, kept_by
from zoo.cache_chunks import ChunkCache
from zoo.chunks import Chunking
from zoo.init import Embedding, Linear
from zoo.loop import Loop
from zoo.per_layer_embeddings import PerLayerInput, PerLayerInputs
from zoo.random_depth import RandomDepth, drawn
from zoo.recompute import recomputed
from zoo.recursion import RecursiveLoop
from zoo.site import Given, Site, Step, Tap
from zoo.skips import UNetSkips
from zoo.spec import ModelSpec
from zoo.value_embeddings import ValueEmbeddingLayers

Leaving = Callable[[Tensor], None]
"""Told of a stream."""


def ignored(stream: Tensor) -> None:
    """Nobody asked for it."""


class Stack(nn.Module):
    """Embedded tokens: (B, T, D) → the normalised stream: (B, T, D)."""

    def __init__(self, spec: ModelSpec, *, encodes_for: int = 0) -> None:
        """encodes_for: the layers of the decoder whose encoder it is, which has the token table; 0 for none."""
        super().__init__()
        self.spec = spec
        self.recorder: Tap | None = None
        self.recompute = False
        """Whether blocks are computed again for their backward passes, instead of keeping what those need."""
        if not encodes_for:
            self._build_table()
        self.embedding_norm = spec.block.norm.build(spec.d_model) if spec.has_embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(spec.embedding_dropout)
        self.positions = _shared_positions(spec)
        held = [(*pair, self.positions[str(i)]) for i, pair in enumerate(spec.positions) if str(i) in self.positions]
        self._shared = {scheme.name_for(heads): module for scheme, heads, module in held}
        self._added = [module for scheme, _, module in held if scheme.absolute]
        """What position schemes hold for all layers, by name, and what is added to the embedded tokens; `positions`
        owns the modules."""
        self._deaf = [scheme.kind for scheme, _ in spec.positions if not scheme.takes_places]
        layers, self.block_of_each = spec.layers, spec.block_of_each
        self._lends = any(layer.mixer.borrows for layer in layers)
        other = encodes_for or (spec.encoder.n_layers if spec.encoder is not None else 0)
        site = Site(spec.d_model, 0, spec.n_layers, other_layers=other, encodes=encodes_for > 0)
        first_uses = [self.block_of_each.index(block) for block in range(max(self.block_of_each) + 1)]
        self.blocks = nn.ModuleList(Block(layers[i], replace(site, layer=i)) for i in first_uses)
        """Each once, where several layers share one."""
        self._build_beside(spec)
        self.value_embeddings = None
        if spec.value_embeddings is not None:
            values = [layer.mixer.value_heads for layer in layers]
            self.value_embeddings = ValueEmbeddingLayers(spec.value_embeddings, spec.vocab_size, values)
        self.skips = UNetSkips(spec.n_layers) if spec.unet_skips else None
        self.placements = [layer.norm_placement for layer in layers]
        self.first, self.last = self.placements[0], self.placements[-1]
        self.norm = spec.block.norm.build(spec.d_model) if spec.has_final_norm else nn.Identity()

    @property
    def last_norm(self) -> nn.Module | None:
        """What normalises the stream as it leaves the stack; None where nothing does, or other layers use it too."""
        if self.spec.has_final_norm:
            return self.norm
        block, alone = self.block_of_each[-1], self.altup is None and self.per_layer is None
        if not self.spec.layers[-1].normalises_stream or not alone or self.block_of_each.count(block) > 1:
            return None
        return cast("nn.Module | None", getattr(cast(Block, self.blocks[block]).last_residual, "norm_after", None))

    def _build_beside(self, spec: ModelSpec) -> None:
        """What reads and writes the stream between blocks."""
        count, make_norm = len(self.blocks), partial(spec.block.norm.build, spec.d_model)
        self.altup = AltUpStreams(spec.altup, make_norm, spec.d_model, count) if spec.altup else None
        self.per_layer = None
        if spec.per_layer_embeddings is not None:
            norms = spec.block.norm.build(spec.per_layer_embeddings.features), make_norm
            sizes = spec.vocab_size, spec.d_model, spec.n_layers, count
            self.per_layer = PerLayerInputs(spec.per_layer_embeddings, norms, sizes)
        self.loop = None
        if spec.sharing is not None and spec.sharing.injection:
            self.loop = Loop(spec.sharing, make_norm, spec.d_model, spec.n_layers)
        self.recursion = None
        if spec.sharing is not None and spec.sharing.recursion is not None:
            turns = spec.sharing.turns(spec.n_layers)
            self.recursion = RecursiveLoop(spec.sharing.recursion, turns, spec.d_model)
        self.closing = spec.layers[-1].norm_placement.build_close(make_norm, spec.d_model, spec.n_layers)
        self.chunking = Chunking(spec.chunks, make_norm, spec.d_model) if spec.chunks else None

    def _build_table(self) -> None:
        spec, width = self.spec, self.spec.table_width
        factorised = spec.embedding_dim is not None
        self.embedding = Embedding(spec.vocab_size, width)
        self.token_types = Embedding(spec.token_types, spec.d_model) if spec.token_types else None
        self.project_in = Linear(width, spec.d_model, role="input") if factorised else None
        self.project_out = Linear(spec.d_model, width, role="input") if factorised else None

    @property
    def cache_entries(self) -> int:
        """How many a cache has: one per layer, and one for all that run on chunks or in a loop with routers."""
        layers = self.spec.n_layers
        if self.recursion is not None:
            return layers - len(self.recursion.layers) + 1
        return layers if self.chunking is None else layers - len(self.chunking.spec.inner(layers)) + 1

    def new_entries(self, new: Callable[[int, int], LayerCache], batch: int, dtype: torch.dtype) -> list[LayerCache]:
        """Those of a cache. new(layer, rows): a layer's own."""
        layers = self.spec.n_layers
        if self.chunking is not None:
            return self.chunking.new_entries(new, layers, batch, dtype)
        if self.recursion is not None:
            return self.recursion.new_entries(new, layers, batch)
        return [new(layer, batch) for layer in range(layers)]

    def step(self, tokens: Tensor, start: int, left_pad: Tensor | None, given: Given) -> Step:
        """The pass over `tokens` (B, T), the first of which is token `start` of the stream."""
        step = Step.of(tokens, start, left_pad)
        step.sight, step.shared, step.recorder = self.spec.visible, self._shared, self.recorder
        step.lent = {} if self._lends else None
        step.token_types = given.get("token_types")
        if step.token_types is not None and self.spec.token_types is None:
            raise ValueError("token_types are for models that have a table of them (spec.token_types)")
        step.places, step.block_places = given.get("places"), given.get("block_places")
        if step.places is not None and self._deaf:
            raise ValueError(
                f"positions cannot be passed to a model with {self._deaf[0]} positions, which depend on distances only"
            )
        if "right_pad" in given:
            if self.spec.visible != "all":
                raise ValueError(f"right_pad is for models with visible: all; this one has visible: {step.sight}")
            step.ends = tokens.shape[1] - given["right_pad"]
        if "prefix" in given and self.spec.visible == "prefix":  # a causal model has no use for it
            step.prefix_ends = given["prefix"] if left_pad is None else given["prefix"] + left_pad
        return step

    def run(self, embedded: Tensor, step: Step, cache: Cache | None = None, left: Leaving = ignored) -> Tensor:
        """(B, T, D): the stream that leaves the last layer. `left` is told of those that leave the others."""
        if self.chunking is not None:
            return self._run_on_chunks(self.chunking, embedded, step, None if cache is None else cache.layers)
        if self.recursion is not None:
            return self._run_recursion(self.recursion, embedded, step, None if cache is None else cache.layers)
        if self.loop is not None and self.loop.depth is not None and self.training and cache is None:
            return self._run_at_random_depth(self.loop, self.loop.depth, embedded, step)
        x, outside = self._open(embedded), step.prefix
        of_layers = None if self.per_layer is None else self.per_layer(cast(Tensor, step.tokens), embedded)
        read: list[Tensor] = []
        lower: dict[int, Tensor] = {}  # torch.compile cannot trace dict[int, Tensor]()
        for i, block in enumerate(self.block_of_each):
            if i:
                left(x)
            if self.skips is not None:
                x = self.skips(x, i, lower)
            if self.loop is not None:
                x = self.loop(x, i, read)
            if self.value_embeddings is not None:
                self.value_embeddings.tell(i, step)
            step.prefix = f"{outside}blocks.{i}."
            run = partial(self._run_block, block, step, None if cache is None else cache.layers[i])
            x = run(x) if self.altup is None else self.altup.layers[block](x, run)
            if of_layers is not None:
                x = self._with_input(x, block, of_layers[..., i, :])
        step.prefix, step.revalue = outside, None
        return self.close(x)

    # A program that torch compiles for one number of turns would serve no other (as in `zoo.chunks`).
    @_disable_dynamo
    def _run_at_random_depth(self, loop: Loop, depth: RandomDepth, embedded: Tensor, step: Step) -> Tensor:
        """Prelude, as many turns as are drawn, coda. What turns without a gradient leave in the step, such as a table
        of biases, is not for those that have one."""
        turns, trained = drawn(depth, len(loop.turns), embedded), depth.backward or math.inf
        e = self._run_layers(range(loop.turns.start), self._open(embedded), step)
        x, core = loop.begin(e), range(loop.turns.start, loop.turns.start + loop.turns.step)
        for left in reversed(range(turns)):
            if left >= trained:
                with torch.no_grad():
                    x = self._run_layers(core, loop.turn(x, e), step.copy())
            else:
                x = self._run_layers(core, loop.turn(x, e), step)
        return self.close(self._run_layers(range(loop.turns.stop, self.spec.n_layers), loop.end(x), step))

    def _run_layers(self, layers: range, x: Tensor, step: Step) -> Tensor:
        """The stream through some of the layers."""
        outside = step.prefix
        for i in layers:
            step.prefix = f"{outside}blocks.{i}."
            x = self._run_block(self.block_of_each[i], step, None, x)
        step.prefix = outside
        return x

    def _run_on_chunks(self, chunking: Chunking, x: Tensor, step: Step, kept: Sequence[LayerCache] | None) -> Tensor:
        """Encoder, layers on chunks, decoder: each opens a stream of its own. kept: the cache's entries."""
        inner = chunking.spec.inner(self.spec.n_layers)
        entries = [None] * self.cache_entries if kept is None else kept
        x = self._run_some(range(inner.start), x, step, entries[: inner.start])
        between = kept_by(self, entries[inner.start], ChunkCache)
        x = chunking(x, step, partial(self._run_some, inner), len(inner), between)
        return self._run_some(range(inner.stop, self.spec.n_layers), x, step, entries[inner.start + 1 :])

    def _run_recursion(self, loop: RecursiveLoop, x: Tensor, step: Step, kept: Sequence[LayerCache] | None) -> Tensor:
        """Prelude, turns on ever fewer tokens, coda. kept: the cache's entries."""
        inner = loop.layers
        entries = [None] * self.cache_entries if kept is None else kept
        x = self._run_some(range(inner.start), x, step, entries[: inner.start])
        x = loop(x, step, kept_by(self, entries[inner.start], ChunkCache), self._run_some)
        return self._run_some(range(inner.stop, self.spec.n_layers), x, step, entries[inner.start + 1 :])

    def _run_some(self, layers: range, x: Tensor, step: Step, caches: Sequence[LayerCache | None]) -> Tensor:
        """(B, T, D) → (B, T, D), by some of the layers."""
        if not layers:
            return x
        x, outside = self.placements[layers[0]].open(x), step.prefix
        for i, cache in zip(layers, caches, strict=True):
            step.prefix = f"{outside}blocks.{i}."
            x = self._run_block(self.block_of_each[i], step, cache, x)
        step.prefix = outside
        return self.placements[layers[-1]].close(x)

    def _run_block(self, block: int, step: Step, cache: LayerCache | None, x: Tensor) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return recomputed(cast(Block, self.blocks[block]), x, step)
        out: Tensor = self.blocks[block](x, step, cache)
        return out

    def _with_input(self, x: Tensor, block: int, embedded: Tensor) -> Tensor:
        """The stream that leaves a layer, with what the layer makes of its own embedding of the tokens: (B, T, P)."""
        layer = cast(PerLayerInput, cast(PerLayerInputs, self.per_layer).layers[block])
        if self.spec.altup is None:
            out: Tensor = x + layer(x, embedded)
            return out
        added = layer(x[..., self.spec.altup.active, :], embedded)[..., None, :]
        return torch.cat((x[..., :1, :], x[..., 1:, :] + added), dim=-2)

    def _open(self, embedded: Tensor) -> Tensor:
        """(B, T, D) → the stream that layers read and write."""
        return self.first.open(embedded) if self.altup is None else self.altup.open(embedded)

    def close(self, x: Tensor) -> Tensor:
        """The stream → (B, T, D) for the final norm and the head."""
        if self.closing is not None:
            out: Tensor = self.closing(x)
            return out
        return self.last.close(x) if self.altup is None else self.altup.close(x)

    def enter(self, embedded: Tensor, step: Step) -> Tensor:
        """Embedded tokens (B, T, D) as the first block reads them: with absolute positions, normalised where the spec
        says so."""
        x = embedded
        for positions in self._added:
            x = x + positions(step).to(x.dtype)
        out: Tensor = self.dropout(self.embedding_norm(x))
        return out


def _shared_positions(spec: ModelSpec) -> nn.ModuleDict:
    """What position schemes hold for the whole stack, under their index in `spec.positions`."""
    built = {str(i): scheme.build_shared(spec.d_model, heads) for i, (scheme, heads) in enumerate(spec.positions)}
    return nn.ModuleDict({name: module for name, module in built.items() if module is not None})
