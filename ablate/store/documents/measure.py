"""`measure-<request>.json`: how fast one run's model reads and writes, and in how many bytes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.store.documents._document import (
    Bytes,
    BytesPerToken,
    Document,
    JsonObject,
    NatsPerToken,
    Part,
    Quartiles,
    Tokens,
    Unit,
)


class MeasuredPoint(Part):
    """A context and a batch. A point that could not be had has a reason in place of its numbers."""

    context: Tokens
    """Tokens of each row."""
    batch: int
    """Rows."""
    reason: str | None = None
    """Why there are no numbers: memory, the end of a table of positions, a kind of cache that the model cannot have."""


class CachePoint(MeasuredPoint):
    """Bytes of a full cache; of pages, those in use."""

    declared_bytes: Bytes | None = None
    """As the specification counts them."""
    allocated_bytes: Bytes | None = None
    """As they were allocated."""


class SpeedPoint(MeasuredPoint):
    """What one phase takes."""

    tokens_per_second: Annotated[Quartiles, Unit("tokens/s")] | None = None
    """Of all rows together."""
    peak_memory_bytes: Bytes | None = None
    """The most memory that it took."""


class PrefillPoint(SpeedPoint):
    """Reading a prompt into an empty cache, up to the logits that choose the next token."""

    seconds_to_first_token: Annotated[Quartiles, Unit("s")] | None = None
    """What each row waits."""
    seconds_to_read: Annotated[Quartiles, Unit("s")] | None = None
    """The same of an encoder, which writes none."""


class DecodePoint(SpeedPoint):
    """Writing one token after another, from a cache that holds the context."""

    seconds_per_output_token: Annotated[Quartiles, Unit("s")] | None = None
    """What each row waits for one more token."""
    bytes_read_per_step: Annotated[float, Unit("bytes")] | None = None
    """Of parameters and cache."""
    bandwidth_utilisation: Annotated[Quartiles, Unit("share")] | None = None
    """Bytes read per step, over seconds and the bandwidth of a copy."""


class Measured(Part):
    """All points through one kind of cache."""

    cache: tuple[CachePoint, ...]
    """What the cache takes."""
    prefill: tuple[PrefillPoint, ...]
    """How fast prompts are read."""
    decode: tuple[DecodePoint, ...]
    """How fast tokens are written."""


class MeanNats(Part):
    """A mean over windows of text."""

    value: NatsPerToken | None
    """Null where it is not finite."""
    stderr: NatsPerToken | None
    """Standard error over windows."""


class LossThroughCache(Part):
    """The loss of held-out text that is read through a cache, or the reason why there is none."""

    nats_per_token: MeanNats | None = None
    """The loss."""
    added: MeanNats | None = None
    """Less the loss through a plain cache."""
    reason: str | None = None
    """Why there is no loss."""


class CacheLoss(Part):
    """The loss of held-out text through every kind of cache, a chunk of tokens at a time."""

    length: Tokens
    """Of the windows that are read."""
    windows: int = 0
    """How many are read."""
    reason: str | None = None
    """Why none could be read."""
    kinds: dict[str, LossThroughCache] = Field(default={})
    """By kind of cache."""


class MeasureDocument(Measured, Document):
    """What was measured through a plain cache, and through the other kinds that were asked for.

    An encoder has no cache: its points of `cache` and `decode` have a reason.
    """

    request: JsonObject
    """The measurement spec that this answers."""
    kv_bytes_per_token: BytesPerToken | None
    """Bytes of a full cache over its tokens; null where there is no cache."""
    kv_context: Tokens
    """Tokens of that cache."""
    bandwidth_bytes_per_second: Annotated[float, Unit("bytes/s")]
    """Of a copy on this machine, measured beside it."""
    caches: dict[str, Measured] = Field(default={})
    """The same for other kinds of cache, by the kind and the settings that are not its defaults."""
    cache_loss: CacheLoss | None = None
    """What those kinds add to the loss, of causal models of text."""
