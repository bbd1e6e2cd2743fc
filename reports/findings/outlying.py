"""A seed that ended far from the other seeds of its arm, without having stalled or diverged. Pure.

Arms are rows and seeds columns of one table. An arm whose seeds scatter far more than those of the others is found as
an erratic rate is (`reports.statistics.erratic`); it is one seed's doing where the others, without what a seed does to
all arms, lie together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from reports.statistics.erratic import steady_noise

FEWEST = 3
"""Of two seeds, neither is the odd one."""
FAR = 5.0
"""Times the scatter of the arm's other seeds, or of other arms where that is larger."""


@dataclass(frozen=True)
class Outlier:
    """A seed, and how far it ended above the mean of its arm's other seeds (nats; negative below)."""

    seed: int
    above: float


def outliers(runs: pl.DataFrame) -> Mapping[str, Outlier]:
    """By arm, over the seeds that finished in all arms that finished any."""
    finished = runs.filter(status="finished").drop_nulls("loss")
    by = {str(arm): dict(of.select("seed", "loss").iter_rows()) for (arm,), of in finished.group_by("arm")}
    seeds = sorted(set.intersection(*map(set, by.values()))) if by else []
    if len(by) < 2 or len(seeds) < FEWEST:
        return {}
    table = np.array([[of[seed] for seed in seeds] for of in by.values()])
    steady = steady_noise([table.tolist()])
    calm = [row for row in range(len(table)) if (0, row) not in steady.erratic]
    if steady.noise is None or not calm:
        return {}
    own = table - table[calm].mean(axis=0)  # without what a seed does to all arms
    names = list(by)
    found = {names[row]: _outlier(seeds, own[row], steady.noise.sd) for _, row in steady.erratic}
    return {name: each for name, each in found.items() if each is not None}


def _outlier(seeds: list[int], losses: np.ndarray, sd: float) -> Outlier | None:
    """None where the others lie no closer together."""
    place = int(np.argmax(np.abs(losses - np.median(losses))))
    others = np.delete(losses, place)
    above = float(losses[place] - others.mean())
    return Outlier(seeds[place], above) if abs(above) > FAR * max(sd, float(others.std(ddof=1))) else None
