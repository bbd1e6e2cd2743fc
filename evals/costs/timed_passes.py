"""Timed work at one context × batch: reading a context, and decoding after it. Random tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Unpack, cast

import torch
from torch import Tensor

from evals.costs.clock import Clock, synchronise
from evals.costs.spec import PLAIN
from zoo.caches import CacheKind
from zoo.caching.cache import Cache, TokenCache
from zoo.decode import compiled_step, roomy_cache
from zoo.errors import SpecError, UnsupportedError
from zoo.model import Decoder
from zoo.site import Given
from zoo.spec import ModelSpec, longest_context, longest_text

# Inputs that make up a context, by kind of model, when speed is measured.


def convention(spec: ModelSpec) -> str | None:
    """Sentence that defines a context in measured speeds and bytes; None for a causal decoder."""
    if spec.encoder is not None:
        return "With an encoder, the context is the encoder's tokens; a full cache also holds as many decoder tokens."
    return {
        "all": "Encoders generate no tokens: they have no KV cache, and their time is that of one forward pass.",
        "prefix": "For prefix LMs, the context is the prefix.",
        "causal": None,
    }[spec.visible]


def prompt(spec: ModelSpec, tokens: Tensor, written: int = 1) -> tuple[Tensor, Given]:
    """tokens: (B, S), a context → the tokens that the decoder reads, and the other inputs.

    A decoder reads the context; for a prefix LM it is the prefix. With an encoder, the encoder reads the context, and
    the decoder its first `written` tokens, since any tokens will do.
    """
    if spec.encoder is not None:
        return tokens[:, :written], {"encoder_tokens": tokens}
    if spec.visible == "prefix":
        return tokens, {"prefix": torch.full(tokens.shape[:1], tokens.shape[1], device=tokens.device)}
    return tokens, {}


def beyond_positions(spec: ModelSpec, context: int, more: int = 0) -> str | None:
    """Reason why a model cannot read a context, or its decoder not `more` tokens after as many; None if it can."""
    end = longest_text(spec) if more else longest_context(spec)
    return None if end is None or context + more <= end else f"reads at most {end} tokens"


DECODED = 16
"""Tokens per row that a repeat of decoding generates."""


@dataclass(frozen=True)
class TimedPasses:
    """A model with `batch` rows of `context` tokens. Iterators are endless and yield the seconds of each repeat.

    clock: source of the time; `time.process_time` leaves out waiting for a processor. kind: kind of cache.
    """

    model: Decoder
    context: int
    batch: int
    clock: Clock
    kind: CacheKind

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder, which generates no tokens."""
        return self.model.spec.visible == "all"

    def full_cache(self, turn: int = 0, further: int = 0) -> Cache:
        """A cache that holds the context, with room for `further` more tokens. Raises SpecError if the model does not
        support this kind."""
        cache = self._cache(self.context + further)
        self._read(next(self._inputs(turn)), cache, written=self.context)
        return cache

    def _cache(self, capacity: int) -> Cache:
        return self.model.new_cache(self.batch, capacity, encoder_capacity=self.context, kind=self.kind)

    def prefill_seconds(self, turn: int = 0) -> Iterator[float]:
        """Seconds of reading into an empty cache, up to the logits that choose the next token."""
        for tokens in self._inputs(turn):
            cache = None if self.encodes else self._cache(self.context)
            start = self._now()
            self._read(tokens, cache)
            yield self._now() - start

    def decode_seconds(self, turn: int = 0, decoded: int = DECODED) -> Iterator[float]:
        """Seconds of greedy decoding from a cache that holds the context, one token per row at a time."""
        how = self.compiled_decode_seconds if self.model.device.type == "cuda" else self.issued_decode_seconds
        return how(turn, decoded)

    def issued_decode_seconds(self, turn: int = 0, decoded: int = DECODED) -> Iterator[float]:
        """`decode_seconds` by operations that Python issues one by one."""
        filled = self.full_cache(turn, decoded)
        for text in self._inputs(turn):
            # A cache may refer to the model's modules, which move the keys of sinks and are not copied.
            cache, tokens = copy.deepcopy(filled, {id(part): part for part in self.model.modules()}), text[:, :1]
            start = self._now()
            for _ in range(decoded):
                tokens = self._next(tokens, cache)
            yield self._now() - start
            del cache  # before the next copy is made: two are alive at once, as `_shortage` counts them

    def compiled_decode_seconds(
        self, turn: int, decoded: int, backend: str | Callable[..., object] = "inductor"
    ) -> Iterator[float]:
        """`decode_seconds` by one compiled program, replayed as a graph on CUDA, since issuing its operations from
        Python takes longer than a GPU takes to run them. A repeat overwrites the tokens of the last one. Raises
        SpecError for caches and models without a compiled step."""
        try:
            if self.kind != PLAIN:
                raise UnsupportedError("cache", "a compiled step needs plain keys and values")
            cache = roomy_cache(self.model, self.batch, self.context + decoded)
        except UnsupportedError as error:
            reason = f"launch-bound: without a compiled step, decoding measures Python's overhead ({error.reason})"
            raise SpecError(error.path, reason) from error
        further = compiled_step(self.model, backend)
        text = next(self._inputs(turn))
        self._read(text, cache, written=self.context)
        lengths = [cast(TokenCache, layer).length for layer in cache.layers]
        begin, token = cache.length, text[:, :1]
        while True:
            start = self._now()
            for _ in range(decoded):
                token = further(token, cache).argmax(-1, keepdim=True)
            yield self._now() - start
            cache.length = begin
            for layer, length in zip(cache.layers, lengths, strict=True):
                cast(TokenCache, layer).length = length

    def _read(self, tokens: Tensor, cache: Cache | None, written: int = 1) -> None:
        """Read a context (B, S) as defined in `evals.costs.timed_passes`; a prefix is read in one pass."""
        if cache is None:
            self.model.hidden(tokens)
            return
        own, given = prompt(self.model.spec, tokens, written)
        if "prefix" in given and cache.readable(self.context) < self.context:
            reason = f"{self.kind.label} cannot read a prefix of {self.context} tokens in one pass"
            raise UnsupportedError("cache", reason)
        self._next(own, cache, **given)

    def _next(self, tokens: Tensor, cache: Cache, **given: Unpack[Given]) -> Tensor:
        """The likeliest next token of each row: (B, T) → (B, 1). Only the last position needs the head."""
        return self.model.read_out(self.model.hidden(tokens, cache, **given)[:, -1:]).argmax(-1)

    def _inputs(self, turn: int = 0) -> Iterator[Tensor]:
        """Endless random (B, context) tokens, the same for every model with this vocabulary size."""
        draw = torch.Generator().manual_seed(turn)
        shape, vocabulary = (self.batch, self.context), self.model.spec.vocab_size
        while True:
            yield torch.randint(vocabulary, shape, generator=draw).to(self.model.device)

    def _now(self) -> float:
        synchronise(self.model.device)
        return self.clock()
