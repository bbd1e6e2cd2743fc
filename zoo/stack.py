"""A stack of blocks with its absolute positions, embedding norm and final norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from zoo.block import Block, recomputed
from zoo.caching.cache import Cache, LayerCache
from zoo.caching.parts import begin_pass
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.errors import UnsupportedError
from zoo.features import FeatureLayer, Runner, Streams, new_norm
from zoo.init import Embedding, Linear
from zoo.site import ForwardPass, Given, LayerSite, Tap
from zoo.spec import ModelSpec


class Stack(nn.Module):
    """Embedded tokens: (B, T, D) → the normalised stream: (B, T, D)."""

    def __init__(self, spec: ModelSpec, *, encodes_for: int = 0) -> None:
        """encodes_for: number of layers of the decoder, which has the token table, if this stack is its encoder; else
        0."""
        super().__init__()
        self.spec = spec
        self.recorder: Tap | None = None
        self.recompute = False
        """Whether blocks use activation checkpointing."""
        if not encodes_for:
            self._build_table()
        self.embedding_norm = spec.block.norm.build(spec.d_model) if spec.has_embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(spec.embedding_dropout)
        shared = {str(i): scheme.build_shared(spec.d_model, heads) for i, (scheme, heads) in enumerate(spec.positions)}
        self.positions = nn.ModuleDict({name: module for name, module in shared.items() if module is not None})
        """Modules of position schemes that serve the whole stack, keyed by index in `spec.positions`."""
        held = [(*pair, self.positions[str(i)]) for i, pair in enumerate(spec.positions) if str(i) in self.positions]
        self._shared = {scheme.name_for(heads): module for scheme, heads, module in held}
        self._added = [module for scheme, _, module in held if scheme.absolute]
        """`_shared`: modules of position schemes that serve all layers, by name; `_added`: those added to the embedded
        tokens. `positions` owns both."""
        self._relative = [scheme.kind for scheme, _ in spec.positions if not scheme.takes_places]
        layers, self.block_of_each = spec.layers, spec.block_of_each
        self._crossing = next(iter(unsupported(spec, Operation.DOCUMENTS)), None)
        """A part by which documents of one row may see each other, if any."""
        self._lends = any(layer.mixer.borrows for layer in layers)
        other = encodes_for or (spec.encoder.n_layers if spec.encoder is not None else 0)
        site = LayerSite(spec.d_model, 0, spec.n_layers, other_layers=other, encodes=encodes_for > 0)
        first_uses = [self.block_of_each.index(block) for block in range(max(self.block_of_each) + 1)]
        self.blocks = nn.ModuleList(Block(layers[i], replace(site, layer=i)) for i in first_uses)
        """Each block once, also if several layers share it."""
        self.placements = [layer.norm_placement for layer in layers]
        self.closing = self.placements[-1].build_close(partial(new_norm, spec), spec.d_model, spec.n_layers)
        built = (feature.build(spec) for feature in spec.features.values())
        self.parts = sorted((part for part in built if part is not None), key=lambda part: part.shell)
        """Modules of the features, innermost first. Each is a submodule of the model under its own name."""
        self._add(part for part in self.parts if not part.reads_out)
        self.norm = new_norm(spec) if spec.has_final_norm else nn.Identity()
        self._add(part for part in self.parts if part.reads_out)

    @property
    def last_norm(self) -> nn.Module | None:
        """Last norm that the stream passes; None if there is none, or if other layers use it, too."""
        if self.spec.has_final_norm:
            return self.norm
        block = self.block_of_each[-1]
        if not self.spec.ends_normalised or self.block_of_each.count(block) > 1:
            return None
        return cast("nn.Module | None", getattr(cast(Block, self.blocks[block]).last_residual, "norm_after", None))

    def _add(self, parts: Iterable[FeatureLayer]) -> None:
        for part in parts:
            if hasattr(self, part.name) or part.name == "norm":
                raise ValueError(f"{type(part).__name__}: the model already has an attribute {part.name!r}")
            self.add_module(part.name, part)

    @property
    def _runner(self) -> Runner | None:
        """The part that runs some of the layers itself, if any; a model has at most one."""
        return next((part for part in self.parts if isinstance(part, Runner)), None)

    @property
    def _streams(self) -> Streams | None:
        """The part, if any, that splits the stream into several; residuals may do so, too."""
        return next((part for part in self.parts if isinstance(part, Streams)), None)

    def _build_table(self) -> None:
        spec, width = self.spec, self.spec.table_width
        factorised = spec.embedding_dim is not None
        self.embedding = Embedding(spec.vocab_size, width)
        self.token_types = Embedding(spec.token_types, spec.d_model) if spec.token_types else None
        self.project_in = Linear(width, spec.d_model, role="input") if factorised else None
        self.project_out = Linear(spec.d_model, width, role="input") if factorised else None

    @property
    def cache_entries(self) -> int:
        """Number of entries in a cache: one per layer, and one per part that remembers earlier tokens; a `Runner` has
        its own number for the layers that it runs."""
        runner = self._runner
        own = 0 if runner is None else runner.entries() - len(runner.layers)
        return self.spec.n_layers + own + len(self._remembering)

    @property
    def _remembering(self) -> list[FeatureLayer]:
        """Parts with a cache of their own, whose entries come after those of the layers."""
        return [part for part in self.parts if part.remembers]

    def new_entries(self, new: Callable[[int, int], LayerCache], batch: int, dtype: torch.dtype) -> list[LayerCache]:
        """Entries of a cache. new(layer, rows): creates a layer's entry."""
        runner, own = self._runner, [part.new_cache(batch, dtype) for part in self._remembering]
        if runner is None:
            return [*(new(layer, batch) for layer in range(self.spec.n_layers)), *own]
        before, after = range(runner.layers.start), range(runner.layers.stop, self.spec.n_layers)
        between = runner.new_entries(new, batch, dtype)
        return [*(new(layer, batch) for layer in before), *between, *(new(layer, batch) for layer in after), *own]

    def step(self, tokens: Tensor, start: int, left_pad: Tensor | None, given: Given) -> ForwardPass:
        """The pass over `tokens` (B, T), the first of which is token `start` of the stream. Raises ValueError for
        inputs that the model does not take."""
        step = ForwardPass.of(tokens, start, left_pad)
        step.mask_kind, step.shared, step.recorder = self.spec.visible, self._shared, self.recorder
        step.lent = {} if self._lends else None
        step.documents = given.get("documents")
        if step.documents is not None and self._crossing is not None:
            raise UnsupportedError("documents", f"does not support {self._crossing}")
        step.token_types = given.get("token_types")
        if step.token_types is not None and self.spec.token_types is None:
            raise ValueError("token_types need a model with token-type embeddings (spec.token_types)")
        step.places, step.block_places = given.get("places"), given.get("block_places")
        if step.places is not None and self._relative:
            raise ValueError(
                f"places cannot be passed to a model with {self._relative[0]} positions, which depend on distances only"
            )
        if "right_pad" in given:
            if self.spec.visible != "all":
                raise ValueError(f"right_pad needs a model with visible: all, not {step.mask_kind}")
            step.ends = tokens.shape[1] - given["right_pad"]
        if "prefix" in given and self.spec.visible == "prefix":  # a causal model has no use for it
            step.prefix_ends = given["prefix"] if left_pad is None else given["prefix"] + left_pad
        return step

    def run(self, embedded: Tensor, step: ForwardPass, cache: Cache | None = None) -> Tensor:
        """(B, T, D): output of the last layer."""
        layers, runner, remembering = range(self.spec.n_layers), self._runner, self._remembering
        count = self.cache_entries - len(remembering)
        entries: Sequence[LayerCache | None] = [None] * count
        if cache is not None:
            entries, own = cache.layers[:count], cache.layers[count:]
            step.caches = {part.name: each for part, each in zip(remembering, own, strict=True)}
            for each in own:
                begin_pass(each)
        for part in self.parts:
            part.begin(embedded, step)
        if runner is None or not runner.takes(cached=cache is not None):
            return self._with_own_stream(layers, embedded, step, entries)
        run = self._with_own_stream if runner.own_streams else self._layers
        start, end = runner.layers.start, runner.layers.start + runner.entries()
        x = embedded if runner.own_streams else self._open(embedded, 0)
        x = run(layers[:start], x, step, entries[:start])
        x = runner.run(x, step, entries[start:end], partial(run, bare=True))
        x = run(layers[runner.layers.stop :], x, step, entries[end:])
        return x if runner.own_streams else self.close(x)

    def _with_own_stream(
        self, layers: range, x: Tensor, step: ForwardPass, entries: Sequence[LayerCache | None], bare: bool = False
    ) -> Tensor:
        """(B, T, D) → (B, T, D): open the stream, run layers on it, and close it."""
        if not layers:
            return x
        return self.close(self._layers(layers, self._open(x, layers[0]), step, entries, bare), layers[-1])

    def _layers(
        self, layers: range, x: Tensor, step: ForwardPass, entries: Sequence[LayerCache | None], bare: bool = False
    ) -> Tensor:
        """Run some of the layers on an open stream. bare: without the feature parts around them."""
        outside, parts = step.prefix, [] if bare else self.parts
        for i, entry in zip(layers, entries, strict=True):
            for part in reversed(parts):
                x = part.before(x, i, step)
            step.prefix = f"{outside}blocks.{i}."
            run: Callable[[Tensor], Tensor] = partial(self._run_block, self.block_of_each[i], step, entry)
            for part in parts:
                run = partial(part.around, i, run)
            x = run(x)
            for part in parts:
                x = part.after(x, i, step)
        step.prefix, step.revalue = outside, None
        return x

    def _run_block(self, block: int, step: ForwardPass, cache: LayerCache | None, x: Tensor) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return recomputed(cast(Block, self.blocks[block]), x, step)
        out: Tensor = self.blocks[block](x, step, cache)
        return out

    def _open(self, embedded: Tensor, layer: int) -> Tensor:
        """(B, T, D) → the stream, or several, that layers from this one on read and write."""
        streams = self._streams
        return self.placements[layer].open(embedded) if streams is None else streams.open(embedded)

    def close(self, x: Tensor, layer: int = -1) -> Tensor:
        """Stream, or several, after a layer, by default the last → (B, T, D)."""
        if self.closing is not None:
            out: Tensor = self.closing(x)
            return out
        streams = self._streams
        return self.placements[layer].close(x) if streams is None else streams.close(x)

    def enter(self, embedded: Tensor, step: ForwardPass) -> Tensor:
        """Embedded tokens (B, T, D) as the first block reads them: with absolute positions, the embedding norm and
        dropout."""
        x = embedded
        for positions in self._added:
            x = x + positions(step).to(x.dtype)
        out: Tensor = self.dropout(self.embedding_norm(x))
        return out
