"""Tuning one arm: which settings to try next, given how the last ones did. Pure and deterministic.

A proposal is a generator of batches of settings. It is sent the losses of each batch, one per tuning seed, and returns
a `Tuned`. Since the same losses always lead to the same settings, a tuning that was interrupted is gone through again
from the store.
"""

from __future__ import annotations

from ablate.planning.grid import grid
from ablate.planning.sampling import sampled
from ablate.planning.trials import Batches, Legal, Stalls
from ablate.study.space import Space
from ablate.study.tune_spec import TuneSpec


def propose(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls = lambda loss: False) -> Batches:
    """Settings to try. `legal` says whether an arm can be built with settings that the study did not list itself."""
    return (grid if spec.is_grid else sampled)(spec, space, legal, stalls)
