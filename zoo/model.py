"""The model: embed → blocks → norm → head."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block import Block
from zoo.cache import Cache, LayerCache
from zoo.caches import CacheKind, cache_kind
from zoo.init import Embedding, Linear, initialise
from zoo.loss import chunks_for, next_token_loss
from zoo.mtp import MtpModule, mtp_loss
from zoo.site import Site, Step, Tap
from zoo.spec import ModelSpec


class Decoder(nn.Module):
    """tokens: (B, T) int64 → logits: (B, T, V). Shows `log_z`: (B, T), log Σ exp of each token's logits."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.recorder: Tap | None = None
        self.origin: dict[str, Any] | None = None
        """Plain data that says which other library's model this was converted from (see `zoo.hf`)."""
        width, factorised = spec.table_width, spec.embedding_dim is not None
        self.embedding = Embedding(spec.vocab_size, width)
        self.project_in = Linear(width, spec.d_model, role="input") if factorised else None
        self.project_out = Linear(spec.d_model, width, role="input") if factorised else None
        self.embedding_norm = spec.block.norm.build(spec.d_model) if spec.has_embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(spec.embedding_dropout)
        self.positions = _shared_positions(spec)
        self._shared = {
            pair: self.positions[str(i)] for i, pair in enumerate(spec.positions) if str(i) in self.positions
        }
        """The modules of position schemes by (spec, heads); `positions` owns them."""
        layers = spec.layers
        sites = (Site(spec.d_model, i, spec.n_layers) for i in range(spec.n_layers))
        self.blocks = nn.ModuleList(Block(block, site) for block, site in zip(layers, sites, strict=True))
        self.first, self.last = layers[0].norm_placement, layers[-1].norm_placement
        self.norm = spec.block.norm.build(spec.d_model) if spec.has_final_norm else nn.Identity()
        self.mtp = nn.ModuleList(self._mtp_module(k) for k in range(spec.mtp.depth if spec.mtp else 0))
        self.head = Linear(width, spec.vocab_size, role="head") if not spec.tie_embeddings else None
        self.head_bias = nn.Parameter(torch.zeros(spec.vocab_size)) if spec.head_bias else None
        self.roles = {"head_bias": "bias"}

    def _mtp_module(self, k: int) -> MtpModule:
        """The one that looks k + 1 tokens further than the model."""
        spec, last = self.spec, self.spec.layers[-1]
        block = Block(last, Site(spec.d_model, spec.n_layers + k, spec.n_layers))
        return MtpModule(lambda: spec.block.norm.build(spec.d_model), block, last.norm_placement, spec.d_model)

    def forward(self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None) -> Tensor:
        """Logits of every given token.

        With a cache, `tokens` are the next ones after those it has seen: any chunk length. left_pad: (B,) int64, the
        number of padding tokens at the left of each row; with a cache, pass it with the first chunk only.
        """
        return self.read_out(self.hidden(tokens, cache, left_pad))

    def hidden(self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None) -> Tensor:
        """(B, T, D): what the head reads."""
        return self._normalised(self.stream(tokens, cache, left_pad))

    def stream(self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None) -> Tensor:
        """(B, T, D): what leaves the last layer."""
        if cache is None:
            step = self._step(tokens, 0, left_pad)
            return self._run(self.embed(tokens, step), step, None)
        cache.admit(tokens.shape[1], left_pad)
        parts = []
        while tokens.shape[1]:
            now = cache.readable(tokens.shape[1])
            parts.append(self._read(tokens[:, :now], cache))
            tokens = tokens[:, now:]
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def _read(self, tokens: Tensor, cache: Cache) -> Tensor:
        step = self._step(tokens, cache.length, cache.left_pad)
        out = self._run(self.embed(tokens, step), step, cache)
        cache.length += tokens.shape[1]
        return out

    def predict_ahead(
        self, k: int, hidden: Tensor, tokens: Tensor, start: int, cache: LayerCache, left_pad: Tensor | None
    ) -> Tensor:
        """h^k of multi-token prediction at places from `start` on: (B, n, D), from h^{k−1} there and the tokens
        k places further: (B, n). The cache holds what module k has read before."""
        embedded = self.embed(tokens, self._step(tokens, start + k, left_pad))
        out: Tensor = self.mtp[k - 1](hidden, embedded, self._step(tokens, start, left_pad), cache)
        return out

    def _step(self, tokens: Tensor, start: int, left_pad: Tensor | None) -> Step:
        step = Step.of(tokens, start, left_pad)
        step.shared = self._shared
        step.recorder = self.recorder
        return step

    def _run(self, embedded: Tensor, step: Step, cache: Cache | None) -> Tensor:
        """(B, T, D): the stream that leaves the last layer."""
        x = self.first.open(embedded)
        for i, block in enumerate(self.blocks):
            step.prefix = f"blocks.{i}."
            x = block(x, step, cache.layers[i] if cache is not None else None)
        step.prefix = ""
        out = self.last.close(x)
        step.tap("log_z", lambda: self._log_z(out))
        return out

    def _log_z(self, stream: Tensor) -> Tensor:
        """(B, T, D), the stream that leaves the last layer → (B, T): logsumexp of each token's logits."""
        chunks = chunks_for(stream[..., 0].numel(), self.spec.vocab_size)
        rows = stream.flatten(0, -2).chunk(chunks)
        log_z = torch.cat([self.read_out(self.norm(row)).float().logsumexp(dim=-1) for row in rows])
        return log_z.view(stream.shape[:-1])

    def _normalised(self, stream: Tensor) -> Tensor:
        out: Tensor = self.norm(stream)
        return out

    def embed(self, tokens: Tensor, step: Step) -> Tensor:
        """(B, T, D): embedded tokens, scaled, with absolute positions, normalised where the spec says so."""
        x = self.embedding(tokens)
        if self.project_in is not None:
            x = self.project_in(x)
        if self.spec.embedding_factor != 1:
            x = x * self.spec.embedding_factor
        for (scheme, _), module in step.shared.items():
            if scheme.absolute:
                x = x + module(step).to(x.dtype)
        out: Tensor = self.dropout(self.embedding_norm(x))
        return out

    def read_out(self, hidden: Tensor) -> Tensor:
        """hidden: (B, T, D) → logits: (B, T, V)."""
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        weight = self.embedding.weight if self.head is None else self.head.weight
        logits = F.linear(hidden, weight, self.head_bias)
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        if self.spec.final_softcap is not None:
            logits = self.spec.final_softcap * torch.tanh(logits / self.spec.final_softcap)
        return logits

    def loss(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(what training minimises, nats per token). tokens, targets: (B, T); targets of −100 are ignored."""
        step = self._step(tokens, 0, None)
        embedded = self.embed(tokens, step)
        stream = self._run(embedded, step, None)
        chunks = chunks_for(tokens.numel(), self.spec.vocab_size)
        read_out = lambda rows: self.read_out(self.norm(rows))  # noqa: E731
        objective, nats = next_token_loss(read_out, stream, targets, self.spec.z_loss, chunks)
        if self.training and self.spec.mtp is not None:
            ahead = mtp_loss(self.mtp, stream, embedded, targets, step, read_out, chunks)
            step.losses.append(self.spec.mtp.weight / self.spec.mtp.depth * ahead)
        return objective + torch.stack(step.losses).sum() if step.losses else objective, nats

    def new_cache(
        self, batch: int, capacity: int, dtype: torch.dtype | None = None, kind: CacheKind | str = "plain"
    ) -> Cache:
        """An empty cache for `batch` rows of up to `capacity` tokens, in the model's own type unless told; more where
        every layer forgets. kind: how it is stored (see `zoo.caches`)."""
        number, stored = dtype or self.embedding.weight.dtype, cache_kind(kind)
        stored.check([layer.mixer for layer in self.spec.layers])
        plain = (cast(Block, block).new_cache(batch, capacity, number) for block in self.blocks)
        # One layer after the other: what is stored otherwise is not there as it is for all layers at once.
        return Cache([stored.store(layer, cast(Block, b).mixer) for layer, b in zip(plain, self.blocks, strict=True)])


def _shared_positions(spec: ModelSpec) -> nn.ModuleDict:
    """What position schemes hold for the whole model, under their index in `spec.positions`."""
    built = {str(i): scheme.build_shared(spec.d_model, heads) for i, (scheme, heads) in enumerate(spec.positions)}
    return nn.ModuleDict({name: module for name, module in built.items() if module is not None})


def build(spec: ModelSpec, seed: int = 0) -> Decoder:
    """A model with initial values drawn by role (see `zoo.init`); the same seed gives the same values."""
    model = Decoder(spec)
    initialise(model, spec.init, spec.n_layers, seed)
    return model
