"""Measured costs: `measure-<request>.json`, a study's `costs-<request>.json` and `calibration/<digest>.json`.

`measure-<request>.json` has the cache bytes, prefill speed and decoding speed of one run's model.

`studies/<name>-<scale>/costs-<request>.json` has the arms' speeds, measured against each other. In each process the
arms take turns, round after round, so that slow changes of the machine's load cancel in the ratio of adjacent turns.
Several processes repeat this, to show effects that differ between them, such as memory placement.

`calibration/<digest>.json` has the measured time of a training step, for budgets in seconds.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from store.documents._document import (
    Bytes,
    BytesPerToken,
    Document,
    Environment,
    GpuState,
    JsonObject,
    NatsPerToken,
    Part,
    Quartiles,
    Seconds,
    Time,
    Tokens,
    Unit,
)
from store.documents.run import RunNumerics


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


Work = Literal["training", "prefill", "decoding"]
"""A training step, reading a prompt, or generating tokens one by one."""


CROWDED = 0.05
"""A turn does not count if its thread had no processor for this share of its ready time or more."""


FEWEST_PROCESSES = 3
"""Least number from which the spread between processes can be estimated."""
FEWEST_ROUNDS = 2
"""Least number of rounds for a process to count."""


class CostPoint(Part):
    """Turns of several arms at one kind of work."""

    work: Work
    """The kind of work."""
    context: Tokens
    """Tokens per row; in training, of the longest row."""
    batch: int
    """Rows; in training, of the largest batch."""
    seconds: Annotated[dict[str, tuple[float, ...]], Unit("s/token")]
    """Seconds per token, all rows counted, by arm and round."""
    waited: Annotated[dict[str, tuple[float | None, ...]], Unit("share")]
    """Share of the thread's ready time in which it had no processor, by arm and round; null if the system does not
    report it."""
    reasons: dict[str, str] = Field(default={})
    """Why an arm has no numbers here, by arm."""

    def counted(self, arm: str) -> tuple[float | None, ...]:
        """Seconds per token in each round; None for a round in which other programs held the processor."""
        turns = zip(self.seconds.get(arm, ()), self.waited.get(arm, ()), strict=True)
        return tuple(None if (waited or 0.0) >= CROWDED else seconds for seconds, waited in turns)

    def log_ratio(self, arm: str, base: str, fewest: int = FEWEST_ROUNDS) -> float | None:
        """ln(seconds / base's seconds): median over rounds that count for both; None if fewer than `fewest` do."""
        rounds = zip(self.counted(arm), self.counted(base), strict=False)
        found = [math.log(own / other) for own, other in rounds if own is not None and other is not None]
        return median(found) if len(found) >= fewest else None


class CostProcess(Part):
    """One measuring process. Each builds the models in an order of its own."""

    points: tuple[CostPoint, ...]
    """All its measurements."""
    gpu: GpuState | None = None
    """Clock, power and temperature of the GPU during them; null on a CPU, and without `nvidia-ml-py`."""

    def judged(self, work: Work) -> CostPoint | None:
        """The point that arms are judged by: the longest context, and there the smallest batch; None if unmeasured."""
        found = (point for point in self.points if point.work == work)
        return max(found, key=lambda point: (point.context, -point.batch), default=None)


class CostsDocument(Document):
    """A study's arms, measured in alternation."""

    request: str
    """Digest of the measured setting: models, training, numerics, device and settings."""
    processes: tuple[CostProcess, ...]
    """Measuring processes, as repetitions."""
    environment: Environment
    """Software and machine."""
    seconds: Seconds
    """Wall time of the measurement."""
    measured: Time
    """Time of the measurement (ISO 8601)."""

    @property
    def is_crowded(self) -> bool:
        """Whether too few processes compare some arm with the first, because other programs held the processor."""
        for work in ("training", "decoding"):
            judged = [point for process in self.processes if (point := process.judged(work))]
            arms = dict.fromkeys(arm for point in judged for arm in point.seconds)  # the baseline comes first
            base = next(iter(arms), "")
            for arm in arms:
                if sum(point.log_ratio(arm, base) is not None for point in judged) < FEWEST_PROCESSES:
                    return True
        return False


class CalibrationDocument(Document):
    """A step time. It is never measured again once stored, because runs derive their number of steps from it."""

    digest: str
    """Digest of the measured setting: model, training, numerics, device and workers."""
    model: JsonObject
    """The resolved model."""
    train: JsonObject
    """The training settings that affect the time of a step."""
    numerics: RunNumerics
    """Device and precision."""
    device: str
    """Name of the processor or the GPU."""
    workers: int
    """Concurrent processes."""
    seconds_per_step: Annotated[Quartiles, Unit("s")]
    """Measured step times, over all turns of all processes."""
    steps: int
    """Number of turns timed, each of one step or more."""
    seconds: Seconds | None = None
    """Step time that budgets use; null in older documents, which use the median of `seconds_per_step`. For a model
    measured later than others of its study: the time of one of them times the measured ratio of the two."""
    error: Annotated[float | None, Unit("ln s")] = None
    """Standard error of ln(`seconds`) over processes, relative to the models measured with it; for ln of the ratio of
    two, the root of the sum of both squares. Null in older documents."""
    processes: int | None = None
    """Number of measuring processes; null in older documents."""
    environment: Environment
    """Software and machine."""
    measured: Time
    """Time of the measurement (ISO 8601)."""

    @property
    def step_seconds(self) -> float:
        """Step time that budgets use."""
        return self.seconds_per_step.median if self.seconds is None else self.seconds
