"""When a study that adds seeds looks at its results, and at what level it tests then."""

from __future__ import annotations

from dataclasses import dataclass

ALPHA = 0.05


@dataclass(frozen=True)
class Look:
    """At `seeds` seeds, tests are at level `alpha`; the levels of all looks sum to 5 %."""

    seeds: int
    alpha: float


def looks(start: int, cap: int) -> tuple[Look, ...]:
    """Seed counts that grow by about half, from `start` to `cap`, with equal shares of the error rate."""
    counts = [start]
    while counts[-1] < cap:
        counts.append(min(cap, -(-3 * counts[-1] // 2)))
    return tuple(Look(seeds, ALPHA / len(counts)) for seeds in counts)
