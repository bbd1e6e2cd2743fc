"""Other runs of a store that tell of a study's: runs of the same arms, and runs of like size, length and data."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from store.documents import StudyArm, StudyDocument
from store.documents.study import UNJUDGED
from store.store import Store

ALIKE = 2.0
"""Runs are alike if their size and their length differ by at most this factor."""
STUDIES_READ = 50
"""Most studies of a store that are read."""


@dataclass(frozen=True)
class Likeness:
    """Conditions of a study's runs: non-embedding parameters and steps of its baseline, and the digests of its data."""

    parameters: float
    steps: float
    data: frozenset[str | None]

    def has(self, base: StudyArm) -> bool:
        """Whether a baseline's runs are of like size and length, on the same data."""
        near = _near(base.length.parameters, self.parameters) and _near(base.steps, self.steps)
        return near and base.data in self.data


def like_tables(store: Store, like: Likeness, without: Collection[str]) -> Iterator[Mapping[str, Mapping[int, float]]]:
    """Losses by arm and seed of each judged study of like runs. without: digests of runs that are left out."""
    for study in islice(store.readable_studies(), STUDIES_READ):
        if study.scale not in UNJUDGED and like.has(study.baseline_arm):
            table = {arm.name: _losses(store, arm, without) for arm in study.arms}
            if any(table.values()):
                yield table


def shared_runs(store: Store, study: StudyDocument) -> dict[str, dict[int, float]]:
    """Runs of a study's baseline on other seeds, in other studies: losses by study and seed, infinite for a failed run.

    The baseline is the same if its identity is, which covers all but the seed that determines its losses. A study with
    another arm in common asks the same question of other seeds, and is judged by itself.
    """
    own = {arm.identity for arm in study.arms}
    base = study.baseline_arm
    seen, found = {run.seed for run in base.runs}, {}
    for other in store.readable_studies():
        same = [arm for arm in other.arms if arm.identity in own]
        if (other.name, other.scale) == (study.name, study.scale) or [arm.identity for arm in same] != [base.identity]:
            continue
        losses = {seed: loss for seed, loss in _losses(store, same[0], ()).items() if seed not in seen}
        if losses:
            found[f"{other.name}@{other.scale}"] = losses
            seen |= losses.keys()
    return found


def _losses(store: Store, arm: StudyArm, without: Collection[str]) -> dict[int, float]:
    """Losses by seed of an arm's runs that ended; infinite for one that failed."""
    ended = {run.seed: store.outcome(run.digest) for run in arm.runs if run.digest not in without}
    return {
        seed: found.loss if found.status == "finished" and found.loss is not None else math.inf
        for seed, found in ended.items()
        if found is not None
    }


def _near(one: float, other: float) -> bool:
    return bool(one and other) and max(one / other, other / one) <= ALIKE
