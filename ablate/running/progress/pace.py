"""Training speed of runs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Pace:
    """Work per second while there are steps: neither what comes before the first nor what follows the last counts."""

    before: float
    """Work that was done already."""
    since: float
    """When it was last seen that no more than that was done."""
    work: float = field(init=False)
    until: float = field(init=False)
    """When `work` was first seen."""

    def __post_init__(self) -> None:
        self.work, self.until = self.before, self.since

    @property
    def done(self) -> float:
        return self.work - self.before

    def see(self, work: float, now: float) -> None:
        if work <= self.before:
            self.since = self.until = now
        elif work > self.work:
            self.work, self.until = work, now

    def seconds(self, work: float) -> float | None:
        """Estimated seconds for this work; None if none is left, or nothing was done yet."""
        return work * (self.until - self.since) / self.done if work > 0 and self.done > 0 else None
