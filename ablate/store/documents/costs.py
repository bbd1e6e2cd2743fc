"""`studies/<name>-<scale>/costs-<request>.json`: the arms' speeds, measured against each other.

In each process the arms take turns, round after round, so that a ratio of neighbouring turns is free of whatever else
the machine did. What differs from process to process, such as where memory lies, shows by repeating it in several.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from ablate.store.documents._document import Document, Environment, GpuState, Part, Seconds, Tokens, Unit

Work = Literal["training", "prefill", "decoding"]
"""A training step, reading a prompt, or generating tokens one by one."""


CROWDED = 0.05
"""A turn whose thread was without a processor for so large a share of the time in which it was ready does not count."""


FEWEST_PROCESSES = 3
"""Fewer say nothing of how much processes differ."""
FEWEST_ROUNDS = 2
"""Fewer say nothing of a process."""


class CostPoint(Part):
    """Turns of several arms at one kind of work."""

    work: Work
    """The arms' work."""
    context: Tokens
    """Tokens of each row; in training those of the longest."""
    batch: int
    """Rows; in training those of the largest batch."""
    seconds: Annotated[dict[str, tuple[float, ...]], Unit("s/token")]
    """Seconds per token of all rows together by arm, one for each round."""
    waited: Annotated[dict[str, tuple[float | None, ...]], Unit("share")]
    """Share of a turn in which its thread was ready and had no processor, by arm and round; null where the system
    does not say."""
    reasons: dict[str, str] = Field(default={})
    """Reason why an arm has no numbers here."""

    def counted(self, arm: str) -> tuple[float | None, ...]:
        """Seconds per token in each round; None where other programs had the processor."""
        turns = zip(self.seconds.get(arm, ()), self.waited.get(arm, ()), strict=True)
        return tuple(None if (waited or 0.0) >= CROWDED else seconds for seconds, waited in turns)

    def log_ratio(self, arm: str, base: str, fewest: int = FEWEST_ROUNDS) -> float | None:
        """ln of seconds over the base's: the median over rounds that count for both; None where those are too few."""
        rounds = zip(self.counted(arm), self.counted(base), strict=False)
        found = [math.log(own / other) for own, other in rounds if own is not None and other is not None]
        return median(found) if len(found) >= fewest else None


class CostProcess(Part):
    """One process, in which models were built in an order of their own."""

    points: tuple[CostPoint, ...]
    """All that it measured."""
    gpu: GpuState | None = None
    """Clock, power and heat of the GPU meanwhile; null for a processor, and where `nvidia-ml-py` is not installed."""

    def judged(self, work: Work) -> CostPoint | None:
        """The point that arms are judged by: the longest context, and there the smallest batch."""
        found = (point for point in self.points if point.work == work)
        return max(found, key=lambda point: (point.context, -point.batch), default=None)


class CostsDocument(Document):
    """A study's arms, measured in alternation."""

    request: str
    """Digest of what was measured: models, training, numerics, device and settings."""
    processes: tuple[CostProcess, ...]
    """Repetitions."""
    environment: Environment
    """Software and machine."""
    seconds: Seconds
    """Wall time that it took."""
    measured: str
    """Time of the measurement (ISO 8601)."""

    def log_ratios(self, work: Work, arm: str, base: str) -> tuple[float, ...]:
        """ln of seconds per token over the base's at what arms are judged by: a value for each process that counts."""
        judged = (point for process in self.processes if (point := process.judged(work)) is not None)
        return tuple(found for point in judged if (found := point.log_ratio(arm, base)) is not None)

    @property
    def is_crowded(self) -> bool:
        """Whether other programs had the processor so often that some arm cannot be compared with the first."""
        for work in ("training", "decoding"):
            arms = {arm for process in self.processes if (point := process.judged(work)) for arm in point.seconds}
            if any(
                len(self.log_ratios(work, arm, base)) < FEWEST_PROCESSES for base in sorted(arms)[:1] for arm in arms
            ):
                return True
        return False
