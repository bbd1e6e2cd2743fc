"""How fast a model reads and writes, and what its cache takes."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import zoo
from evals.causal import check_causal
from evals.clock import Clock, quartiles, synchronise
from evals.lm import evaluating
from evals.spec import MeasureSpec
from zoo.cache import Cache
from zoo.model import Decoder

_FEWEST_REPEATS = 3
_DECODED_PER_REPEAT = 16
_MEMINFO = Path("/proc/meminfo")


def measure(model: Decoder, spec: MeasureSpec) -> dict[str, Any]:
    """The measure document: cache bytes, and prefill and decode tokens/s, at each context × batch.

    The model is measured as it is: its device, its type. Tokens per second count all rows of the batch. A point that
    does not fit in memory has a `reason` instead of numbers.
    """
    check_causal(model.spec)
    points = [
        Point(model, context, batch, spec.seconds)
        for context in sorted(spec.contexts)
        for batch in sorted(spec.batches)
    ]
    largest = max(spec.contexts)
    with evaluating(model):
        return {
            "schema": 1,
            "request": spec.model_dump(mode="json"),
            "kv_bytes_per_token": Point(model, largest, 1, spec.seconds).declared_bytes / largest,
            "kv_context": largest,
            "cache": [point.report(point.cache) for point in points],
            "prefill": [point.report(point.prefill) for point in points],
            "decode": [point.report(point.decode) for point in points],
        }


class Point:
    """One context × batch. clock: what time is read from; `time.process_time` leaves out waiting for a processor."""

    def __init__(
        self, model: Decoder, context: int, batch: int, seconds: float, clock: Clock = time.perf_counter
    ) -> None:
        self.model = model
        self.context = context
        self.batch = batch
        self.seconds = seconds
        self.clock = clock
        self.dtype = model.embedding.weight.dtype
        self.device = model.embedding.weight.device
        self.declared_bytes = zoo.cost(model.spec, context).cache_bytes(batch, context, self.dtype)

    def report(self, measurement: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `measurement` finds, or the reason why there is no room for it."""
        point: dict[str, Any] = {"context": self.context, "batch": self.batch}
        if shortage := self._shortage():
            return point | {"reason": shortage}
        try:
            return point | measurement()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return point | {"reason": f"out of memory: {str(error).splitlines()[0]}"}

    def _shortage(self) -> str | None:
        """A CPU's kernel grants memory that it does not have and kills whoever uses it, so ask first."""
        needed = 2 * self.declared_bytes  # the cache, and the copy that decoding starts each repeat from
        free = available_bytes() if self.device.type == "cpu" else None
        if free is None or needed <= free:
            return None
        return f"out of memory: two caches take {needed} bytes and {free} are available"

    def cache(self) -> dict[str, Any]:
        """Bytes that the specification declares, and bytes that a cache allocates."""
        cache = self.model.new_cache(batch=self.batch, capacity=self.context)
        return {"declared_bytes": self.declared_bytes, "allocated_bytes": cache.nbytes}

    def prefill(self) -> dict[str, Any]:
        """Read `context` new random tokens per row into an empty cache, up to the logits that choose the next token."""
        return {"tokens_per_second": self._rate(self._prefill_seconds(), self.context)}

    def decode(self) -> dict[str, Any]:
        """From a cache that holds `context` tokens, write greedily, one token per row at a time."""
        return {"tokens_per_second": self._rate(self._decode_seconds(), _DECODED_PER_REPEAT)}

    def _rate(self, timings: Iterator[float], tokens: int) -> dict[str, float]:
        """Quartiles of tokens/s over repeats of the measurement, without its first, which warms up."""
        next(timings)
        deadline = time.perf_counter() + self.seconds
        rates: list[float] = []
        while len(rates) < _FEWEST_REPEATS or time.perf_counter() < deadline:
            rates.append(self.batch * tokens / next(timings))
        return quartiles(rates)

    def _prefill_seconds(self) -> Iterator[float]:
        for tokens in self._inputs():
            cache = self.model.new_cache(batch=self.batch, capacity=self.context)
            start = self._now()
            self._next(tokens, cache)
            yield self._now() - start

    def _decode_seconds(self) -> Iterator[float]:
        filled = self.model.new_cache(self.batch, self.context + _DECODED_PER_REPEAT)
        self._next(next(self._inputs()), filled)
        for prompt in self._inputs():
            cache, tokens = copy.deepcopy(filled), prompt[:, :1]
            start = self._now()
            for _ in range(_DECODED_PER_REPEAT):
                tokens = self._next(tokens, cache)
            yield self._now() - start

    def _next(self, tokens: Tensor, cache: Cache) -> Tensor:
        """The likeliest next token of each row: (B, T) → (B, 1). Only the last position needs the head."""
        return self.model.read_out(self.model.hidden(tokens, cache)[:, -1:]).argmax(-1)

    def _inputs(self) -> Iterator[Tensor]:
        """Endless random (B, context) tokens, the same ones for every model of this vocabulary."""
        draw = torch.Generator().manual_seed(0)
        shape, vocabulary = (self.batch, self.context), self.model.spec.vocab_size
        while True:
            yield torch.randint(vocabulary, shape, generator=draw).to(self.device)

    def _now(self) -> float:
        synchronise(self.device)
        return self.clock()


def available_bytes() -> int | None:
    """Memory that Linux says it can give without swapping; None where it does not say."""
    if not _MEMINFO.exists():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
