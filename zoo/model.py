"""The model: embed → blocks → norm → head, with an encoder if the spec has one.

Also parts of the head: the transform that some models apply first, and the product that gives logits.
"""

from __future__ import annotations

import math
from typing import Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block import Block
from zoo.caches import CacheKind, cache_kind
from zoo.caching.cache import ASK_THE_MODEL, NOTHING_TO_CACHE, Cache, LayerCache
from zoo.features import Predicting, new_norm
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear, Role
from zoo.kernels.compiling import device_type
from zoo.kernels.precision import computed_in
from zoo.loss import BatchShare, Head, SoftTargets, log_z, next_token_loss, scored, target_nats
from zoo.refusals import check_given, check_size, check_targets, check_tokens
from zoo.settings.identity import Converted, TokenizerFiles
from zoo.site import ForwardPass, Given, Memory, of_piece
from zoo.spec import ModelSpec
from zoo.stack import Stack


class Decoder(Stack):
    """tokens: (B, T) int64 → logits: (B, T, V). Taps `log_z`: (B, T), log Σ exp of each token's logits."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.origin: Converted | None = None
        self.tokenizer: TokenizerFiles | None = None
        self.transform = None
        if spec.head_transform is not None:
            self.transform = HeadTransform(spec.d_model, spec.head_transform, new_norm(spec))
        # Rows of zeros cannot be normalised, so a head with unit weights is drawn like the token table.
        role: Role = "embedding" if spec.unit_weights else "head"
        self.head = Linear(spec.table_width, spec.vocab_size, role=role) if not spec.tie_embeddings else None
        self.logit_gain = nn.Parameter(torch.zeros(spec.vocab_size)) if spec.logit_gain else None
        self.head_bias = nn.Parameter(torch.zeros(spec.vocab_size)) if spec.head_bias else None
        self.encoder = Stack(spec.encoder_spec, encodes_for=spec.n_layers) if spec.encoder_spec is not None else None
        self.roles = {"head_bias": "bias", "logit_gain": "gain"}
        self.initial = {"logit_gain": spec.d_model**-0.5}

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embedding.weight.device

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None, **given: Unpack[Given]
    ) -> Tensor:
        """Logits after every given token: (B, T, V). Raises ValueError for inputs of wrong type, shape or size.

        With a cache, `tokens` continue those already in the cache, in chunks of any length. left_pad: (B,) int64, the
        number of padding tokens at the left of each row. given: see `zoo.site.Given`. With a cache, left_pad, a prefix
        and encoder tokens are passed with the first chunk only.
        """
        return self.read_out(self.hidden(tokens, cache, left_pad, **given))

    def hidden(
        self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None, **given: Unpack[Given]
    ) -> Tensor:
        """(B, T, D): the head's input."""
        out: Tensor = self.norm(self.stream(tokens, cache, left_pad, **given))
        return out

    def stream(
        self, tokens: Tensor, cache: Cache | None = None, left_pad: Tensor | None = None, **given: Unpack[Given]
    ) -> Tensor:
        """(B, T, D): output of the last layer."""
        check_tokens(tokens)
        if cache is None:
            step = self._begin(tokens, left_pad, given)
            return self._run(self.embed(tokens, step), step, None)
        if len(cache.layers) != self.cache_entries:
            entries = f"{len(cache.layers)} entries, the model needs {self.cache_entries}"
            raise ValueError(f"the cache has {entries}: {ASK_THE_MODEL}")
        check_given(tokens, left_pad, given, cache.capacity, cached=True)
        cache.admit(tokens.shape[0], tokens.shape[1], left_pad, given.get("prefix"))
        parts, start, length = [], 0, tokens.shape[1]
        while start < length:
            end = start + cache.readable(length - start)
            piece, told = tokens[:, start:end], of_piece(given, start, end)
            step = self.step(piece, cache.length, cache.left_pad, told)
            step.memory = cache.memory = self._memory(told, cache.memory, step)
            step.kept = cache.kept
            parts.append(self._run(self.embed(piece, step), step, cache))
            cache.length += end - start
            if cache.memory is not None:  # the layers have stored its keys and values
                cache.memory = Memory(None, cache.memory.text)
            start = end
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def logits_at(self, token: Tensor, index: Tensor, cache: Cache) -> Tensor:
        """Logits (B, V) after one token of each row, (B, 1). index: (1,), its index in the token stream. Meant to be
        compiled: one program serves every index."""
        step = self.step(token, 0, cache.left_pad, {})
        step.index = index
        return self.read_out(self.norm(self._run(self.embed(token, step), step, cache)))[:, 0]

    def encode(
        self,
        tokens: Tensor,
        left_pad: Tensor | None = None,
        right_pad: Tensor | None = None,
        losses: list[Tensor] | None = None,
    ) -> Memory:
        """Encoder output for tokens (B, S), padded at either side: (B, S, D), and a mask that is false on padding.

        losses: list to which its layers append terms of the training objective. Raises ValueError without an encoder.
        """
        if self.encoder is None:
            raise ValueError("this model has no encoder and takes tokens only")
        check_tokens(tokens, "encoder_tokens")
        given: Given = {} if right_pad is None else {"right_pad": right_pad}
        check_given(tokens, left_pad, given, tokens.shape[1])
        step = self.encoder.step(tokens, 0, left_pad, given)
        step.prefix, step.recorder = "encoder.", self.recorder
        step.losses = step.losses if losses is None else losses
        stream = self.encoder.run(self.encoder.enter(self.lookup(tokens), step), step)
        return Memory(self.encoder.norm(stream), step.text)

    def _memory(self, given: Given, known: Memory | None, step: ForwardPass) -> Memory | None:
        """Encoder output for a pass: of the given tokens, or else as the cache knows it. Raises ValueError if both or
        neither are there for a model with an encoder."""
        if "encoder_tokens" not in given:
            if self.encoder is not None and known is None:
                raise ValueError("this model has an encoder: give it encoder_tokens")
            return known
        if known is not None:
            raise ValueError("encoder_tokens belong to the first chunk only")
        pads = given.get("encoder_left_pad"), given.get("encoder_right_pad")
        return self.encode(given["encoder_tokens"], *pads, losses=step.losses)

    def _begin(self, tokens: Tensor, left_pad: Tensor | None, given: Given) -> ForwardPass:
        """Context of a pass without a cache."""
        check_given(tokens, left_pad, given, tokens.shape[1])
        step = self.step(tokens, 0, left_pad, given)
        step.memory = self._memory(given, None, step)
        return step

    def _run(self, embedded: Tensor, step: ForwardPass, cache: Cache | None) -> Tensor:
        """(B, T, D): output of the last layer; taps `log_z`."""
        out = self.run(embedded, step, cache)
        step.tap("log_z", lambda: log_z(self.head_after(self.norm), out))
        return out

    def lookup(self, tokens: Tensor) -> Tensor:
        """(B, T) → (B, T, D): embedded tokens, projected and scaled where the spec says so. Raises ValueError for
        tokens outside the vocabulary."""
        try:
            x: Tensor = self.embedding(tokens)
        except IndexError:
            found = f"{int(tokens.min())} to {int(tokens.max())}"
            raise ValueError(f"token ids must be 0 to {self.spec.vocab_size - 1}, not {found}") from None
        if self.project_in is not None:
            x = self.project_in(x)
        return x if self.spec.embedding_factor == 1 else x * self.spec.embedding_factor

    def embed(self, tokens: Tensor, step: ForwardPass) -> Tensor:
        """(B, T, D): embedded tokens, with their types and absolute positions, normalised where the spec says so."""
        x = self.lookup(tokens)
        if self.token_types is not None:
            x = x + self.token_types(torch.zeros_like(tokens) if step.token_types is None else step.token_types)
        return self.enter(x, step)

    def read_out(self, hidden: Tensor) -> Tensor:
        """hidden: (B, T, D) → logits: (B, T, V)."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        weight = self.embedding.weight if self.head is None else self.head.weight
        logits = aligned_product(hidden, weight, self.head_bias)
        if self.logit_gain is not None:
            logits = logits * (self.logit_gain * math.sqrt(self.spec.d_model))
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        if self.spec.final_softcap is not None:
            logits = self.spec.final_softcap * torch.tanh(logits / self.spec.final_softcap)
        return logits

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        part: BatchShare | None = None,
        soft: SoftTargets | None = None,
        **given: Unpack[Given],
    ) -> tuple[Tensor, Tensor]:
        """(training objective, nats per target). tokens, targets: (B, T); targets of −100 are ignored.

        part: share of the batch, if these are only some of its rows. The losses of all parts sum to that of the batch,
        unless the spec `couples_rows`. soft: a teacher's distribution over the tokens.
        """
        check_tokens(tokens)
        check_targets(targets, tokens, self.spec.vocab_size)
        spec, step = self.spec, self._begin(tokens, None, given)
        embedded = self.embed(tokens, step)
        stream = self._run(embedded, step, None)
        head, count, rows = self.head_after(self.norm), scored(targets), 1.0
        if part is not None:
            count, rows = part.scored, part.rows
        objective, nats = next_token_loss(head, stream, targets, spec.z_loss, count, soft)
        losses = [objective]
        if self.training:
            given_to_parts = Predicting(embedded, stream, targets, step, count, self.norm, self.head_after, self.close)
            losses += [loss for each in self.parts for loss in each.objective(given_to_parts)]
        losses += [rows * loss for loss in step.losses]
        return torch.stack(losses).sum() if len(losses) > 1 else objective, nats

    @torch.no_grad()
    def nats(self, tokens: Tensor, targets: Tensor, **given: Unpack[Given]) -> Tensor:
        """(B, T): −ln p of each target, 0 for targets of −100. tokens, targets: (B, T), as in `loss`."""
        check_tokens(tokens)
        check_targets(targets, tokens, self.spec.vocab_size)
        step = self._begin(tokens, None, given)
        return target_nats(self.head_after(self.norm), self._run(self.embed(tokens, step), step, None), targets)

    def head_after(self, norm: nn.Module) -> Head:
        """A norm and the head, for the loss to apply to the stream."""
        parts = (norm, self.transform, self.project_out, self.embedding if self.head is None else self.head)
        parameters = [p for part in parts if part is not None for p in part.parameters()]
        parameters += [each for each in (self.head_bias, self.logit_gain) if each is not None]
        trained = tuple(p for p in parameters if p.requires_grad)
        return Head(lambda rows: self.read_out(norm(rows)), self.spec.vocab_size, trained)

    def new_cache(
        self,
        batch: int,
        capacity: int,
        dtype: torch.dtype | None = None,
        encoder_capacity: int | None = None,
        *,
        kind: CacheKind | str = "plain",
    ) -> Cache:
        """An empty cache for `batch` rows of up to `capacity` tokens, or of any number if every layer forgets.

        dtype: that of the weights by default. encoder_capacity: encoder tokens, `capacity` by default. kind: storage
        format (see `zoo.caches`). Raises ValueError for mask `all` and for sizes below 1, UnsupportedError if the kind
        cannot serve the model.
        """
        if self.spec.visible == "all":
            raise ValueError(NOTHING_TO_CACHE)
        check_size("batch", batch)
        check_size("capacity", capacity)
        memory = capacity if encoder_capacity is None else encoder_capacity
        check_size("encoder_capacity", memory)
        number = dtype or self.embedding.weight.dtype
        stored = cache_kind(kind)
        stored.check(self.spec)
        blocks = [cast(Block, self.blocks[block]) for block in self.block_of_each]

        def of(layer: int, rows: int) -> LayerCache:
            # One layer at a time, so that plain buffers that `store` replaces never exist for all layers at once.
            block = blocks[layer]
            return stored.store(block.new_cache(rows, capacity, number, memory), block.mixer)

        return Cache(self.new_entries(of, batch, number), batch)


class HeadTransform(nn.Module):
    """norm(act(W x + b)), as wide as the stream, as in BERT (Devlin et al. 2018, arXiv:1810.04805). x: (..., D)."""

    def __init__(self, d_model: int, activation: PlainActivation, norm: nn.Module) -> None:
        super().__init__()
        self.activation = UNGATED[activation]
        self.dense = Linear(d_model, d_model, bias=True, role="input")
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out


ALIGNED = 64
"""Multiple that vocabularies are padded to: tensor cores need rows aligned to 16 bytes and are fastest at 128 bytes, 64
numbers of 16 bits."""


def padded_size(vocabulary: int) -> int:
    """`vocabulary` rounded up to a multiple of 64."""
    return vocabulary + -vocabulary % ALIGNED


def aligned_product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """hidden: (..., D), weight: (V, D), bias: (V,) → logits (..., V).

    In 16-bit training on a GPU, rows of zeros extend the table to a multiple of 64, and their logits are cut off:
    8,193 tokens would select a slow kernel. This adds no parameters and changes no logit.
    """
    size = weight.shape[0]
    missing = padded_size(size) - size
    narrow = device_type(hidden) == "cuda" and computed_in(hidden) in (torch.bfloat16, torch.float16)
    if missing == 0 or not (torch.is_grad_enabled() and narrow):
        return F.linear(hidden, weight, bias)
    longer = None if bias is None else F.pad(bias, (0, missing))
    return F.linear(hidden, F.pad(weight, (0, 0, 0, missing)), longer)[..., :size]
