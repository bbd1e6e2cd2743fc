"""Share of a cost that each setting decides, by arithmetic: total effects (Jansen 1999) over random settings.

    share_j = E[(f(x) − f(x with x_j drawn anew))²] / (2 Var f(x))

A setting that the cost does not depend on has exactly 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from ablate.searching.laboratory import StudyLaboratory
from ablate.study.problems import StudyError
from ablate.study.search_space import Params, random_value

DRAWS = 24


def cost_shares(lab: StudyLaboratory, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Share of every setting by cost, within the settings that can be built."""
    if not names:
        return {}
    rng = np.random.default_rng(0)
    whole: dict[str, list[float]] = {name: [] for name in names}
    changes: dict[str, dict[str, list[float]]] = {name: {path: [] for path in lab.space.axes} for name in names}
    for _ in range(DRAWS):
        params = lab.space.random(rng)
        with suppress(StudyError):  # settings that cannot be built have no costs
            here = lab.costs(params, names)
            for name in names:
                whole[name].append(here[name])
            for path in params:
                _change(lab, params, path, here, changes, rng)
    variances = {name: statistics.pvariance(values) if values else 0.0 for name, values in whole.items()}
    return {
        name: {
            path: statistics.fmean(found) / (2 * variances[name]) if found and variances[name] else 0.0
            for path, found in of.items()
        }
        for name, of in changes.items()
    }


def _change(
    lab: StudyLaboratory,
    params: Params,
    path: str,
    here: dict[str, float],
    changes: dict[str, dict[str, list[float]]],
    rng: np.random.Generator,
) -> None:
    """Add the squared differences that another value of one setting makes."""
    anew = lab.space.draw(lambda p, axis: random_value(axis, rng) if p == path or p not in params else params[p])
    with suppress(StudyError):
        there = lab.costs(anew, list(here))
        for name, of in changes.items():
            of[path].append((there[name] - here[name]) ** 2)
