"""`measure-<request>.json`: cache bytes, prefill speed and decoding speed of one run's model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from store.documents._document import (
    Bytes,
    BytesPerToken,
    Document,
    GpuState,
    JsonObject,
    NatsPerToken,
    Part,
    Quartiles,
    Seconds,
    Tokens,
    Unit,
)


class MeasuredPoint(Part):
    """A context and a batch. A point that could not be measured has a `reason` instead of numbers."""

    context: Tokens
    """Tokens per row."""
    batch: int
    """Rows."""
    reason: str | None = None
    """Why there are no numbers: too little memory, too few learned positions, a cache that the model cannot use."""


class CachePoint(MeasuredPoint):
    """Bytes of a full cache; of a paged cache, the pages in use."""

    declared_bytes: Bytes | None = None
    """Bytes that the spec declares."""
    allocated_bytes: Bytes | None = None
    """Bytes that were allocated."""


class SpeedPoint(MeasuredPoint):
    """Speed and memory of one phase."""

    tokens_per_second: Annotated[Quartiles, Unit("tokens/s")] | None = None
    """Speed of all rows together, over all turns."""
    turns: Annotated[tuple[float, ...], Unit("tokens/s")] = ()
    """Median of each turn. Other points are measured between the turns of one, so their spread shows the influence of
    the machine's state."""
    peak_memory_bytes: Bytes | None = None
    """Peak memory."""
    attention: str | None = None
    """Backends of softmax attention (`zoo/attending`), and `flash-linear-attention` with its version if its kernels
    computed linear mixers; separated by commas, null if there are none."""


class PrefillPoint(SpeedPoint):
    """Reading a prompt into an empty cache, up to the logits that choose the next token."""

    seconds_to_first_token: Annotated[Quartiles, Unit("s")] | None = None
    """Latency of the first token."""
    seconds_to_read: Annotated[Quartiles, Unit("s")] | None = None
    """Latency of an encoder, which generates no token."""


class DecodePoint(SpeedPoint):
    """Decoding token by token, with the context in the cache."""

    seconds_per_output_token: Annotated[Quartiles, Unit("s")] | None = None
    """Latency of each further token."""
    bytes_read_per_step: Annotated[float, Unit("bytes")] | None = None
    """Bytes of parameters and cache that a step reads."""
    bandwidth_utilisation: Annotated[Quartiles, Unit("share")] | None = None
    """Bytes read per step / (seconds · `bandwidth_bytes_per_second`)."""


class Measured(Part):
    """All points of one kind of cache."""

    cache: tuple[CachePoint, ...]
    """Cache memory."""
    prefill: tuple[PrefillPoint, ...]
    """Prefill speed."""
    decode: tuple[DecodePoint, ...]
    """Decoding speed."""


class MeanNats(Part):
    """A mean over windows of text."""

    value: NatsPerToken | None
    """The mean; null if not finite."""
    stderr: NatsPerToken | None
    """Standard error over windows."""


class LossThroughCache(Part):
    """Held-out loss computed through a cache, or the reason why there is none."""

    nats_per_token: MeanNats | None = None
    """The loss."""
    added: MeanNats | None = None
    """The loss minus that through a plain cache."""
    reason: str | None = None
    """Why there is no loss."""


class CacheLoss(Part):
    """Loss of held-out text through every kind of cache, chunk by chunk."""

    length: Tokens
    """Length of the windows."""
    windows: int = 0
    """Number of windows."""
    reason: str | None = None
    """Why there are no windows."""
    kinds: dict[str, LossThroughCache] = Field(default={})
    """Losses by kind of cache."""


class MeasureDocument(Measured, Document):
    """Measurements with a plain cache, and with the other requested kinds.

    An encoder has no KV cache: its points of `cache` and `decode` have a `reason`.
    """

    request: JsonObject
    """The measurement spec that this answers."""
    kv_bytes_per_token: BytesPerToken | None
    """Bytes of a full cache divided by its tokens; null if there is no cache."""
    kv_context: Tokens
    """Tokens of that cache."""
    bandwidth_bytes_per_second: Annotated[float, Unit("bytes/s")]
    """Bandwidth of a copy, measured in the same process."""
    caches: dict[str, Measured] = Field(default={})
    """Measurements with other kinds of cache, by kind and non-default settings."""
    seconds: Seconds | None = None
    """Wall time of the measurement."""
    waiting: Annotated[float | None, Unit("share")] = None
    """Share of the thread's ready time in which it had no processor; null if the system does not report it, and in
    older documents."""
    gpu: GpuState | None = None
    """Clock, power and temperature of the GPU during the measurement; null on a CPU, and without `nvidia-ml-py`."""
    cache_loss: CacheLoss | None = None
    """Loss through each kind of cache; for causal models of text only."""

    @property
    def longest_decoding(self) -> DecodePoint | None:
        """Point at the longest context, and there the smallest batch; None if there are no points."""
        return max(self.decode, key=lambda point: (point.context, -point.batch), default=None)

    @property
    def decoding_speed(self) -> float | None:
        """Median tokens per second of `longest_decoding`; None if it has none."""
        longest = self.longest_decoding
        return longest.tokens_per_second.median if longest and longest.tokens_per_second else None
