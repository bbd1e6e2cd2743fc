"""What runs of one seed have in common, whichever arm they belong to: an analysis of variance.

Standardised residuals z_as = (y_as − ȳ_a) / √V_a have the mean square MS, split into MS_s between seeds and MS_r
within, with ν_r degrees of freedom. Seeds leave the share ρ = MS_r / MS of the variance of a difference. It counts the
more, the less independent runs would have so large an MS_s: with f degrees of freedom for independent runs,

    share = (λ·f + (1 − λ)·ν·ρ) / (λ·f + (1 − λ)·ν)     λ = min(1, 2·P(F > MS_s / MS_r) / TOGETHER)     ν = min(ν_r, f)

A pair whose own differences scatter more, s_p² > ρ·(V_a + V_b), has s_p² / (V_a + V_b) in place of ρ, at most 1: arms
that nearly copy each other have their seeds in common with each other, and not with a third.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from scipy import special  # scipy.stats takes seconds to load

TOGETHER = 0.1
"""Two-sided P(F) below which common seeds count."""


@dataclass(frozen=True)
class CommonSeeds:
    """λ, ρ and ν_r."""

    alone: float = 1.0
    rest: float = 1.0
    freedom: float = 0.0

    @classmethod
    def of(cls, residuals: Iterable[Mapping[Hashable, float]]) -> CommonSeeds:
        """The analysis of the standardised residuals of each arm by seed, over seeds that two arms or more have."""
        by_seed: dict[Hashable, list[float]] = {}
        for arm in residuals:
            for seed, residual in arm.items():
                by_seed.setdefault(seed, []).append(residual)
        common = [of for of in by_seed.values() if len(of) > 1]
        freedom = len(common) - 1
        rest = sum(len(of) - 1 for of in common) - (max(map(len, common), default=1) - 1)
        if freedom < 1 or rest < 1:
            return cls()
        between = sum(len(of) * fmean(of) ** 2 for of in common)
        within = sum((each - fmean(of)) ** 2 for of in common for each in of)
        if not within:  # losses rounded so that they move together
            return cls()
        tail = float(special.fdtrc(freedom, rest, between / freedom / (within / rest)))
        left = within / rest / ((between + within) / (freedom + rest))
        return cls(min(1.0, 2 * tail / TOGETHER), min(1.0, left), rest)

    def share(self, independent: float, own: float = 0.0) -> tuple[float, float]:
        """Share of the variance of a difference that common seeds leave, and its degrees of freedom.

        independent: those of independent runs. own: the variance of the pair's own differences, as a share of that of
        independent runs.
        """
        weights = self.alone * independent, (1 - self.alone) * min(self.freedom, independent)
        whole = sum(weights)
        return (weights[0] + weights[1] * max(self.rest, min(1.0, own))) / whole, whole
