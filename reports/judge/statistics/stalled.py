"""Seeds that fail: what a mean over seeds hides, and how little a few seeds tell of failure rates. Pure.

    diverged   loss ≥ ln V, or not finite: worse than guessing all tokens alike
    stalled    loss > unigram loss − 0.1: it learned how frequent tokens are, and little else

A failed run is an unknown, bad loss (`noise.moderated`): an arm that has one is never better, none is worse than
a baseline that has one, and neither is the same as the other. Arms without a failed seed are judged by their losses,
and the bound on their failure rate belongs beside the verdict.

No rule can do more with few seeds. In 0.9^n of studies, an arm that fails in 10 % of seeds looks exactly like one that
never fails. A rule that calls the latter better with power w calls the former better in w·0.9^n of studies, 73 % at
three seeds, even where its failures cost all that it gains. To keep that at 5 % takes 29 runs without a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.judge.verdicts import ALPHA


def failure_rate_bound(runs: int, alpha: float = ALPHA) -> float:
    """Upper bound on the failure rate of an arm none of whose runs failed, one-sided at 1 − α (Clopper and Pearson
    1934): 1 − α^(1/n)."""
    return 1 - float(alpha ** (1 / runs))


@dataclass(frozen=True)
class Failures:
    """Numbers of failed seeds of an arm and of its baseline."""

    arm: int = 0
    baseline: int = 0

    @property
    def any(self) -> bool:
        return bool(self.arm or self.baseline)
