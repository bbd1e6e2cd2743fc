"""The losses of arms, and the runs that a comparison of two arms uses."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from ablate.noise.difference import Difference
from ablate.noise.scatter import Scatter
from reports.findings.noise import StudyNoise
from reports.statistics.stalled import Reliability
from reports.verdicts import Verdict

PAIRED = 0.75
"""Share of two arms' runs whose seeds both arms must have for pairing; below it, arms are compared by their means. The
choice depends on no loss, so either test keeps its level. With a smaller share, pairing is less sensitive than
comparing all runs' means, unless seeds explain more than half of the variance."""


@dataclass(frozen=True)
class ArmLosses:
    """One arm: final losses by seed (infinite for a failed run), tuning losses by learning rate, and its cost."""

    name: str
    judging: Mapping[Hashable, float]
    tuning: Mapping[float, Sequence[float]]
    rate: float | None = None
    """Learning rate of the final runs."""
    cost: float | None = None
    """Mean cost over runs."""

    @cached_property
    def finished(self) -> dict[Hashable, float]:
        """Losses of the runs that did not fail."""
        return {seed: loss for seed, loss in self.judging.items() if math.isfinite(loss)}

    @property
    def reliability(self) -> Reliability:
        """Counts of runs and of failed runs."""
        return Reliability(len(self.judging) - len(self.finished), len(self.judging))


@dataclass(frozen=True)
class ArmContrast:
    """An arm against another: the difference of their losses at their best learning rates, and the verdict.

    `low` and `high` are the ends of an interval that excludes zero where `p`, corrected for all contrasts, is below
    0.05; an end may be infinite. They and `p` are None if nothing can be tested, with the `reason`. The difference is
    None only if an arm has no finite loss.
    """

    arm: str
    against: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict
    reason: str
    detectable: float | None
    paired: int
    """Number of paired seeds; 0 if the arms are compared by their means."""
    unused: tuple[UnusedRun, ...]
    """Finished runs of either arm that the difference does not use."""


@dataclass(frozen=True)
class UnusedRun:
    """A finished run that a contrast does not use, and why: its seed is `missing` or `failed` in the other arm, or it
    is `odd` in either."""

    arm: str
    seed: Hashable
    why: str


@dataclass(frozen=True)
class Pair:
    """The runs that a comparison of two arms uses."""

    arm: ArmLosses
    base: ArmLosses
    scatter: Scatter
    """Noise model by which they are judged."""
    shared: tuple[Hashable, ...]
    """Seeds that finished in both arms, if the arms are paired."""

    @cached_property
    def left_out(self) -> Mapping[str, Hashable]:
        """The odd seed of each arm, if means leave it out. Pairing leaves out the other arm's run of that seed, too."""
        odd = self.scatter.odd
        names = (self.arm.name, self.base.name)
        return {name: odd[name].seed for name in names if name in odd and odd[name].left_out}

    @cached_property
    def seeds(self) -> list[Hashable]:
        """Paired seeds without odd ones."""
        odd = set(self.left_out.values())
        return [seed for seed in self.shared if seed not in odd]

    @property
    def differences(self) -> list[float]:
        """Paired differences, by seed."""
        return [self.arm.judging[seed] - self.base.judging[seed] for seed in self.seeds]

    def losses(self, arm: ArmLosses) -> list[float]:
        """Losses of one arm that its mean uses, if seeds are not paired."""
        odd = {self.left_out[arm.name]} if arm.name in self.left_out else set()
        return [loss for seed, loss in arm.finished.items() if seed not in odd]

    def difference(self, noise: StudyNoise) -> Difference | None:
        """The difference with its noise; None if it cannot be tested."""
        names = self.arm.name, self.base.name
        if self.shared:
            return noise.difference(names, self.differences)
        return noise.unpaired(names, self.losses(self.arm), self.losses(self.base))

    @property
    def estimate(self) -> float | None:
        """The difference alone; None if an arm has no finite loss."""
        if self.seeds:
            return fmean(self.differences)
        own, others = self.losses(self.arm), self.losses(self.base)
        return fmean(own) - fmean(others) if own and others else None

    def unused(self) -> tuple[UnusedRun, ...]:
        """Finished runs that the comparison does not use."""
        used, found = set(self.seeds), []
        for each, other in ((self.arm, self.base), (self.base, self.arm)):
            odd = {seed for name, seed in self.left_out.items() if self.shared or name == each.name}
            for seed in each.finished:
                if seed in odd:
                    found.append(UnusedRun(each.name, seed, "odd"))
                elif self.shared and seed not in used:
                    found.append(UnusedRun(each.name, seed, "failed" if seed in other.judging else "missing"))
        return tuple(found)


def shared_seeds(arm: ArmLosses, base: ArmLosses) -> tuple[Hashable, ...]:
    """Seeds that finished in both arms; empty for a single seed, or if the arms share too few seeds to be paired
    (`PAIRED`)."""
    if 2 * len(arm.judging.keys() & base.judging.keys()) < PAIRED * (len(arm.judging) + len(base.judging)):
        return ()
    found = tuple(seed for seed in arm.finished if seed in base.finished)
    return found if len(found) > 1 or min(len(arm.finished), len(base.finished)) < 2 else ()
