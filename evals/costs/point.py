"""Speed and memory at one context × batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import torch

import zoo
from evals.costs.clock import Clock, quartiles
from evals.costs.memory import available_bytes, peak_memory
from evals.costs.spec import NO_CACHE, PLAIN
from evals.costs.timed_passes import DECODED, TimedPasses, beyond_positions
from evals.reading.passes import evaluating
from evals.reading.windows import Reason, unless_out_of_memory
from store.documents import CachePoint, DecodePoint, PrefillPoint
from zoo.attend import executed_backends
from zoo.caches import CacheKind
from zoo.caches.paged import OutOfPagesError
from zoo.costs_decoding import decode_cost
from zoo.errors import SpecError
from zoo.model import Decoder

Phase = Literal["prefill", "decode"]
Result = TypeVar("Result")

_FEWEST_REPEATS = 3


class Turn(NamedTuple):
    """Repeats without a break: the seconds of each, peak memory, and attention backends."""

    seconds: list[float]
    peak_memory_bytes: int
    attention: str | None = None


Turns: TypeAlias = list[Turn] | Reason


def _medians(turns: Sequence[Turn], tokens: int) -> tuple[float, ...]:
    """Tokens per second of each turn, from its median repeat of `tokens` tokens."""
    return tuple(tokens / median(turn.seconds) for turn in turns)


@dataclass(frozen=True)
class Point:
    """One context × batch.

    clock: source of the time; `time.process_time` leaves out waiting for a processor. bandwidth: of the device's
    memory, in bytes per second; None for no utilisation. kind: kind of cache. turns: number of parts in which
    `seconds` are spent.
    """

    model: Decoder
    context: int
    batch: int
    seconds: float
    clock: Clock = time.perf_counter
    bandwidth: float | None = None
    kind: CacheKind = PLAIN
    turns: int = 1

    @property
    def passes(self) -> TimedPasses:
        return TimedPasses(self.model, self.context, self.batch, self.clock, self.kind)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embedding.weight.dtype

    @property
    def declared_bytes(self) -> int:
        """Bytes of a full cache. Raises SpecError if the model cannot have one of this kind."""
        return self._bytes(self.context)

    def _bytes(self, written: int) -> int:
        cost = zoo.cost(self.model.spec, written)
        return cost.cache_bytes(self.batch, written, self.dtype, self.context, cache=self.kind)

    def repeats(self, phase: Phase, decoded: int) -> tuple[Iterator[float], int] | Reason:
        """Seconds of endless repeats, the first of which runs here, and the tokens of each; or the reason why there are
        none. decoded: tokens per row that a repeat of decoding generates."""
        timings = self._timings(phase, 0, decoded)
        if isinstance(timings, str):
            return timings
        with evaluating(self.model):
            first = self._tried(timings.__next__)
        tokens = self.batch * (self.context if phase == "prefill" else decoded)
        return first if isinstance(first, str) else (timings, tokens)

    def _timings(self, phase: Phase, turn: int, decoded: int) -> Iterator[float] | Reason:
        if phase == "prefill":
            return self.passes.prefill_seconds(turn)
        if self.passes.encodes:
            return NO_CACHE
        if reason := beyond_positions(self.model.spec, self.context, decoded):
            return f"{reason}, and decoding generates {decoded} more"
        return self.passes.decode_seconds(turn, decoded)

    def _tried(self, measurement: Callable[[], Result]) -> Result | Reason:
        """Result of `measurement`, or the reason why there is none."""
        try:
            refused = beyond_positions(self.model.spec, self.context) or self._shortage()
            return unless_out_of_memory(measurement) if refused is None else refused
        except (SpecError, OutOfPagesError) as error:
            return str(error)

    def _shortage(self) -> str | None:
        """Reason why memory does not suffice on a CPU, whose kernel grants memory that it does not have and kills the
        process that uses it; None if it does."""
        needed = 2 * self.declared_bytes  # the cache, and the copy that decoding starts each repeat from
        free = available_bytes() if self.model.device.type == "cpu" else None
        if free is None or needed <= free:
            return None
        return f"out of memory: two caches take {needed} bytes and {free} are available"

    def cache(self) -> CachePoint:
        """Bytes that the spec declares, and bytes that a full cache has allocated; pages are allocated as it fills."""
        passes = self.passes
        found: int | Reason = self._tried(lambda: NO_CACHE if passes.encodes else passes.full_cache().nbytes)
        if isinstance(found, str):
            return CachePoint(context=self.context, batch=self.batch, reason=found)
        return CachePoint(
            context=self.context, batch=self.batch, declared_bytes=self.declared_bytes, allocated_bytes=found
        )

    def prefill(self) -> PrefillPoint:
        """Read `context` new random tokens per row into an empty cache, up to the logits that choose the next token:
        the time to the first token or, for an encoder, the time to read."""
        return self.prefilled(self._once("prefill"))

    def decode(self) -> DecodePoint:
        """Decode greedily from a cache that holds `context` tokens, one token per row at a time."""
        return self.decoded(self._once("decode"))

    def _once(self, phase: Phase) -> Turns:
        found = self.turn(phase, 0)
        return found if isinstance(found, str) else [found]

    def turn(self, phase: Phase, number: int) -> Turn | Reason:
        """The turn of this number, or the reason why there is none. Each turn has its own inputs."""
        return self._tried(lambda: self.attempt(phase, number))

    def attempt(self, phase: Phase, number: int) -> Turn | Reason:
        """`turn` without the check of memory and the handling of errors."""
        repeats = self._timings(phase, number, DECODED)
        if isinstance(repeats, str):
            return repeats
        with peak_memory(self.model.device) as memory:
            begun = time.perf_counter()
            next(repeats)  # warms up, and reads the prompt that decoding continues
            spent = time.perf_counter() - begun
            with executed_backends(training=False) as backends:
                seconds = self._repeated(repeats, spent)
        return Turn(seconds, memory.bytes, ", ".join(sorted(backends)) or None)

    def prefilled(self, turns: Turns) -> PrefillPoint:
        """Results of all turns together."""
        if isinstance(turns, str):
            return PrefillPoint(context=self.context, batch=self.batch, reason=turns)
        seconds = [each for turn in turns for each in turn.seconds]
        waited = quartiles(seconds)
        return PrefillPoint(
            context=self.context,
            batch=self.batch,
            tokens_per_second=quartiles([self.batch * self.context / each for each in seconds]),
            turns=_medians(turns, self.batch * self.context),
            seconds_to_first_token=None if self.passes.encodes else waited,
            seconds_to_read=waited if self.passes.encodes else None,
            # Of the first turn, where points grow: later turns include memory kept from larger points.
            peak_memory_bytes=turns[0].peak_memory_bytes,
            attention=turns[0].attention,
        )

    def decoded(self, turns: Turns) -> DecodePoint:
        """Results of all turns together."""
        if isinstance(turns, str):
            return DecodePoint(context=self.context, batch=self.batch, reason=turns)
        seconds = [each / DECODED for turn in turns for each in turn.seconds]
        # Bytes of parameters and of the cache, as it is stored, that a step reads: unpacking is not counted.
        middle = self.context + DECODED // 2
        weights = replace(decode_cost(self.model.spec, self.batch, middle), cache_elements=0)
        read, bandwidth = weights.bytes(self.dtype) + self._bytes(middle), self.bandwidth
        return DecodePoint(
            context=self.context,
            batch=self.batch,
            tokens_per_second=quartiles([self.batch / each for each in seconds]),
            turns=_medians(turns, self.batch * DECODED),
            seconds_per_output_token=quartiles(seconds),
            bytes_read_per_step=read if bandwidth else None,
            # Model bandwidth utilisation (MBU). Above 1 if weights and cache lie in the processor's own caches.
            bandwidth_utilisation=quartiles([read / (each * bandwidth) for each in seconds]) if bandwidth else None,
            # Of the first turn, where points grow: later turns include memory kept from larger points.
            peak_memory_bytes=turns[0].peak_memory_bytes,
            attention=turns[0].attention,
        )

    def _repeated(self, timings: Iterator[float], spent: float = 0.0) -> list[float]:
        """Seconds of repeats in the rest of a turn, of which `spent` seconds are over."""
        deadline = time.perf_counter() + self.seconds / self.turns - spent
        seconds: list[float] = []
        while len(seconds) * self.turns < _FEWEST_REPEATS or time.perf_counter() < deadline:
            seconds.append(next(timings))
        return seconds
