"""Decoding that is bound by neither memory nor arithmetic. Pure.

With one sequence, a step multiplies every weight that it reads once: no machine's arithmetic is the limit. What of its
time does not go into reading weights and cache goes into issuing operations (on a GPU, launching kernels), which a
compiled step or a larger model has less of. Williams et al. 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

LITTLE = 0.25
"""Share of the memory's bandwidth below which most of a step's time is overhead."""


def bound_by_overhead(measures: pl.DataFrame) -> Sequence[str]:
    """Arms that use less than that with one sequence, in order, at every context that was measured."""
    alone = measures.filter(kind="decode", batch=1).drop_nulls("bandwidth_utilisation")
    most = alone.group_by("arm", maintain_order=True).agg(pl.max("bandwidth_utilisation"))
    return most.filter(pl.col("bandwidth_utilisation") < LITTLE)["arm"].to_list()
