"""`studies/<name>-<scale>/costs-<request>.json`: the arms' speeds, measured against each other.

In each process the arms take turns, round after round, so that slow changes of the machine's load cancel in the ratio
of adjacent turns. Several processes repeat this, to show effects that differ between them, such as memory placement.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from store.documents._document import Document, Environment, GpuState, Part, Seconds, Time, Tokens, Unit

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
