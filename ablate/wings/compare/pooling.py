"""`ablate.compare_stores`: summarise a difference over several stores, and the heterogeneity of the stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import scipy  # loads its submodules on first use
from scipy import special  # scipy.stats takes seconds to load

import reports
from ablate.api.named import named_folder
from ablate.wings.compare.comparing import frame_rows
from reports.judge.statistics.estimates import holm
from reports.judge.verdicts import ALPHA
from store.documents import JsonObject, StudyDocument
from store.documents.study import UNJUDGED
from store.documents.tuning import RATE
from store.errors import ArgumentError

if TYPE_CHECKING:
    from reports.judge.findings.study_summary import StudySummary


# Summary of one difference over several stores, which may differ by more than noise. Pure.
#
#     y_i ~ N(θ_i, s_i²)      θ_i ~ N(μ, τ²)      w_i = 1 / (s_i² + τ²)      μ = Σ w_i y_i / Σ w_i
#
# τ² solves Σ w_i (y_i − μ)² = k − 1, and is 0 if the left side is smaller even at 0 (Paule and Mandel 1982,
# doi:10.6028/jres.087.022). The interval of μ is Student's with k − 1 degrees of freedom and the standard error 1 / √Σ
# w_i (Hartung and Knapp 2001, doi:10.1002/sim.791, whose factor is 1 for this τ², or is not let below it). So two
# stores hardly determine a mean: they say little about the variation between stores. Q is tested by χ² with k − 1
# degrees of freedom; I² = max(0, 1 − (k − 1) / Q) is the share of the scatter that noise does not explain (Higgins and
# Thompson 2002, doi:10.1002/sim.1186).


@dataclass(frozen=True)
class RandomEffects:
    """Mean over stores with its interval and two-sided p, and the heterogeneity of the stores.

    `tau` is the standard deviation of true differences between stores. A small `q_p` means that noise alone does not
    explain the scatter; `i2` is the share that it does not explain.
    """

    mean: float
    low: float
    high: float
    p: float
    tau: float
    q: float
    q_p: float
    i2: float
    stores: int


def random_effects(values: Sequence[float], errors: Sequence[float]) -> RandomEffects:
    """Summary of differences with these standard errors. Raises ValueError for fewer than two, or an error of 0 or
    less."""
    count = len(values)
    if count < 2 or count != len(errors) or min(errors) <= 0:
        raise ValueError("needs two differences or more, each with a standard error above 0")
    y, variance = np.asarray(values, dtype=float), np.asarray(errors, dtype=float) ** 2

    def scatter(tau2: float) -> tuple[float, float, float]:
        """Σ w (y − μ)², μ and Σ w at τ² = tau2."""
        weights = 1 / (variance + tau2)
        mean = float(weights @ y / weights.sum())
        return float(weights @ (y - mean) ** 2), mean, float(weights.sum())

    q, freedom = scatter(0.0)[0], count - 1
    tau2 = 0.0
    if q > freedom:
        most = float(((y - y.mean()) ** 2).sum())  # where each weight is below 1/most, the sum is below 1
        tau2 = scipy.optimize.brentq(lambda at: scatter(at)[0] - freedom, 0.0, most, xtol=1e-15 * most)
    _, mean, weight = scatter(tau2)
    error = 1 / math.sqrt(weight)
    reach = -float(special.stdtrit(freedom, ALPHA / 2)) * error
    return RandomEffects(
        mean=mean,
        low=mean - reach,
        high=mean + reach,
        p=2 * float(special.stdtr(freedom, -abs(mean) / error)),
        tau=math.sqrt(tau2),
        q=q,
        q_p=float(special.chdtrc(freedom, q)),
        i2=max(0.0, 1 - freedom / q) if q > 0 else 0.0,
        stores=count,
    )


NUMBERS = ("difference", "low", "high", "p", "tau", "q", "q_p", "i2")
SCHEMA = {"arm": pl.String, "against": pl.String, "stores": pl.Int64, **dict.fromkeys(NUMBERS, pl.Float64)}
BY_STORE = {"store": pl.String, "arm": pl.String, "against": pl.String, "difference": pl.Float64, "error": pl.Float64}
Pair = tuple[str, str]


@dataclass(frozen=True)
class StoresCompared:
    """A random-effects summary of a study's differences over stores.

    Attributes:
        differences: a polars frame: arm, against, stores, difference, low, high, p (Holm's, over all rows), tau (the
            standard deviation of true differences between stores), q and its p-value q_p, i2 (the share of the scatter
            between stores that noise does not explain).
        by_store: a polars frame: store, arm, against, difference, error (its standard error, uncertainty of tuning
            included).
        notes: caveats for the reader, such as differences that a store lacks.
    """

    differences: pl.DataFrame
    by_store: pl.DataFrame
    notes: tuple[str, ...] = ()

    def document(self) -> JsonObject:
        """The document that `ablate compare --stores … --json` prints."""
        return {
            "differences": frame_rows(self.differences),
            "by_store": frame_rows(self.by_store),
            "notes": list(self.notes),
        }


def compare_stores(study: str | Path, stores: Sequence[str | Path], *, scale: str | None = None) -> StoresCompared:
    """Summarise a study's differences over stores whose runs must not be pooled: other texts, sizes or machines.

    Differences between stores are part of the uncertainty: a random-effects mean (Paule and Mandel's), with Q, I² and
    τ. The summary does not replace the verdicts of each store, and enters no ledger.

    Args:
        study: its name or its file. Arms of one name must have the same edits, except for the learning rate.
        stores: two or more folders of runs without a run in common; merge stores that share runs.
        scale: the study's scale; needed if a store has it at several.

    Returns:
        The mean difference of each arm, its interval, and the heterogeneity of the stores.

    Raises:
        ArgumentError: stores share runs, their arms are not the same, or the scale is one that is not judged.
        StoreError: a store does not have the study.

    Example:
        >>> ablate.compare_stores("norm_placement", ["ours/runs", "theirs/runs"]).differences
    """
    if len(stores) < 2:
        raise ArgumentError("stores", "name two or more stores")
    found = {str(store): reports.summarise(named_folder(study, scale, store)) for store in stores}
    if len(found) < len(stores):
        raise ArgumentError("stores", "a store is named twice")
    _check({name: summary.study for name, summary in found.items()})
    by_pair: dict[Pair, list[tuple[str, float, float]]] = {}
    notes: list[str] = []
    for name, summary in found.items():
        for pair, value, error in _differences(name, summary, notes):
            by_pair.setdefault(pair, []).append((name, value, error))
    rows = [_row(pair, each) for pair, each in by_pair.items() if len(each) > 1]
    alone = {pair: each[0][0] for pair, each in by_pair.items() if len(each) == 1}
    notes += [f"only {store} has {arm} against {base}" for (arm, base), store in alone.items()]
    corrected = holm([float(str(row["p"])) for row in rows])
    return StoresCompared(
        pl.DataFrame([{**row, "p": p} for row, p in zip(rows, corrected, strict=True)], schema=SCHEMA),
        pl.DataFrame(
            [(name, *pair, value, error) for pair, each in by_pair.items() for name, value, error in each],
            schema=BY_STORE,
            orient="row",
        ),
        tuple(notes),
    )


def _check(studies: Mapping[str, StudyDocument]) -> None:
    """Raise ArgumentError unless the studies are independent, comparable, and at scales that are judged."""
    for (one, first), (other, second) in combinations(studies.items(), 2):
        if shared := first.run_digests & second.run_digests:
            raise ArgumentError(
                "stores",
                f"{one} and {other} have {len(shared)} runs in common, which would count twice: merge one into the "
                "other (`ablate pack`, `ablate merge`)",
            )
        if first.per != second.per:
            raise ArgumentError("stores", f"losses are per {first.per} in {one} and per {second.per} in {other}")
        edits = [{arm.name: {**arm.edits, RATE: None} for arm in study.arms} for study in (first, second)]
        unlike = [name for name in edits[0] if name in edits[1] and edits[0][name] != edits[1][name]]
        if unlike or first.baseline != second.baseline:
            name = f"arm {unlike[0]}" if unlike else "the baseline"
            raise ArgumentError("stores", f"{name} differs between {one} and {other}")
    for name, study in studies.items():
        if study.scale in UNJUDGED:
            raise ArgumentError("scale", f"the scale {study.scale} shows that a study runs, not what it finds", name)


def _differences(name: str, summary: StudySummary, notes: list[str]) -> list[tuple[Pair, float, float]]:
    """Each difference with a standard error: that of a normal distribution whose 95 % interval is as wide as the
    difference's own, which accounts for few seeds and for tuning. Appends to `notes`."""
    found = []
    for each in summary.judgements:
        gap, failures = each.comparison.gap, each.comparison.failures
        low, high = gap.interval(ALPHA) if gap else (0.0, 0.0)
        error = (high - low) / (2 * float(special.ndtri(1 - ALPHA / 2)))
        if gap is None or not 0 < error < float("inf"):
            notes.append(f"{each.arm} against {each.base} is left out for {name}: it has no interval there")
            continue
        if failures.any:
            notes.append(f"{each.arm} against {each.base} in {name}: failed seeds are left out")
        found.append(((each.arm, each.base), gap.value, error))
    return found


def _row(pair: Pair, found: Sequence[tuple[str, float, float]]) -> dict[str, object]:
    summary = random_effects([value for _, value, _ in found], [error for *_, error in found])
    numbers = {name: getattr(summary, name) for name in NUMBERS if name != "difference"}
    return {"arm": pair[0], "against": pair[1], "stores": summary.stores, "difference": summary.mean, **numbers}
