"""The history of a ledger: every comparison ever judged, by question, and its current significance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import numpy as np
import polars as pl
import scipy  # loads its submodules on first use

from reports.judge.findings.judging import difference_claim, joined, judgements, questions
from reports.judge.statistics.estimates import Floats
from reports.judge.statistics.ledger import LedgerClaim, corrected, rounds
from reports.judge.verdicts import ALPHA
from store.documents import JsonObject, LedgerRecord, LedgerTest
from store.tables import Schema

# False-discovery rate of a campaign: an open-ended sequence of proposals tested one after another. Pure.
#
# The t-th p-value is a discovery if p_t ≤ α_t, and α_t depends on the past alone. Each discovery earns new level:
#
#     LORD++     α_t = W₀·γ_t + (α − W₀)·γ_{t−τ₁} + α·Σ_{j≥2} γ_{t−τ_j}
#     SAFFRON    α_t = min(λ, (1 − λ)·[W₀·γ_{t−C₀} + (α − W₀)·γ_{t−τ₁−C₁} + α·Σ_{j≥2} γ_{t−τ_j−C_j}])
#
# τ_j is the time of the j-th discovery, Σ γ = 1, and C_j counts the candidates, p ≤ λ, after τ_j and before t. SAFFRON
# pays only for p-values above λ, so it finds more where many proposals are good. Ramdas et al. 2017 (arXiv:1710.00499)
# and 2018 (arXiv:1802.09098); γ and W₀ as in the R package onlineFDR.
#
# FDR ≤ α at every time, for p-values that are independent under the null; p-values that are valid given the past give
# the same bound on E[false discoveries] / E[discoveries]. Proposals that share a baseline's runs are positively
# correlated, which the proofs do not cover (Fisher 2021, arXiv:2110.08161, has conditions under which they would).
# Simulated, 300 proposals of which 0 to 50 % are good, two-sided tests at a power of 94 % each:
#
#                          FDR, own runs    FDR, one baseline on 20 seeds    power, own runs
#     LORD++               ≤ 1 %            ≤ 1 %                            26 to 70 %
#     SAFFRON              3 to 4 %         4 to 6 %                         40 to 91 %
#
# LORD++ suits campaigns against one set of baseline runs, SAFFRON proposals with baseline runs of their own.

CANDIDATE = 0.5
"""λ of SAFFRON."""


@dataclass(frozen=True)
class Decision:
    """The level at which a p-value was tested, and whether it is a discovery."""

    level: float
    discovery: bool


def lord(p_values: Sequence[float], alpha: float = ALPHA) -> tuple[Decision, ...]:
    """LORD++, W₀ = α/10, γ_t ∝ ln(max(t, 2)) / (t·e^√ln t) (Javanmard and Montanari 2018)."""
    t = np.arange(1, len(p_values) + 1, dtype=np.float64)
    spending = 0.07720838 * np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t))))
    return _invest(p_values, alpha, alpha / 10, spending)


def saffron(p_values: Sequence[float], alpha: float = ALPHA) -> tuple[Decision, ...]:
    """SAFFRON, λ = ½, W₀ = α/2, γ_t ∝ t^(−1.6)."""
    t = np.arange(1, len(p_values) + 1, dtype=np.float64)
    return _invest(p_values, alpha, alpha / 2, t**-1.6 / scipy.special.zeta(1.6), CANDIDATE)


def _invest(
    p_values: Sequence[float], alpha: float, wealth: float, spending: Floats, candidate: float = 0.0
) -> tuple[Decision, ...]:
    """Both rules: t − τ_j − C_j is 1 + the number of non-candidates since τ_j, so only non-candidates advance the
    clock.

    `levels[k]` is the level at clock k; a discovery adds its own spending from the current clock on.
    """
    levels, clock, found = (1 - candidate) * wealth * spending, 0, []
    reward = alpha - wealth
    for p in p_values:
        level = min(float(levels[clock]), candidate or 1.0)
        found.append(Decision(level, p <= level))
        clock += p > candidate
        if p <= level:
            levels[clock:] += (1 - candidate) * reward * spending[: len(levels) - clock]
            reward = alpha
    return tuple(found)


Rule = Literal["lord", "saffron"]
RULES: tuple[str, ...] = get_args(Rule)
DECIDE: Mapping[Rule, Callable[[Sequence[float]], tuple[Decision, ...]]] = {"lord": lord, "saffron": saffron}
LEDGER: Schema = {
    "question": pl.Int64,
    **dict.fromkeys(("judged", "scale", "arm", "baseline", "measure", "seeds"), pl.String),
    "round": pl.Int64,
    **dict.fromkeys(("p", "p_corrected", "level"), pl.Float64),
    "significant": pl.Boolean,
}


def history(
    ledger: Sequence[LedgerRecord], rule: Rule | None = None, elsewhere: Sequence[Sequence[LedgerRecord]] = ()
) -> pl.DataFrame:
    """All valid comparisons in the order of first judgement, including those of the same question in other names'
    ledgers; none if nothing was judged under this name. Tests that reuse some of their own seeds are left out.

    `p` is a comparison's own; `p_corrected` is corrected for the whole ledger, so that at most 5 % of questions have
    any error. `level` belongs to an online rule for the false-discovery rate, if one was chosen: at most 5 % of its
    discoveries are expected to be wrong. `significant` is the verdict by that rule or, without one, by `p_corrected`.
    """
    rows: list[JsonObject] = []
    if ledger:
        together, others = joined((), ledger, elsewhere)
        told = [difference_claim(test) for record in others for test in record.tests if test.p is not None]
        for number, question in enumerate(questions(together), start=1):
            rows += _rows(number, question, told, rule)
    return pl.DataFrame(rows, schema=LEDGER)


def _rows(
    number: int, ledger: Sequence[LedgerRecord], told: Sequence[LedgerClaim], rule: Rule | None
) -> Iterator[JsonObject]:
    """The comparisons of one question."""
    first: dict[LedgerClaim, tuple[LedgerRecord, LedgerTest]] = {}
    for each in ledger:
        for judged_test in each.tests:
            first.setdefault(difference_claim(judged_test), (each, judged_test))
    judged = judgements(difference_claim, lambda test: test.p, (), ledger)
    p_corrected, in_rounds = corrected(judged, told), rounds(judged, told)
    p_values = [each.p for round_ in in_rounds for each in round_.values() if each.p is not None]
    decided = iter(DECIDE[rule](p_values) if rule else ())
    for place, round_ in enumerate(in_rounds, start=1):
        for claim, p in ((claim, each.p) for claim, each in round_.items()):
            record, test = first[claim]
            decision = None if p is None or rule is None else next(decided)
            whole = p_corrected[claim]
            by_ledger = None if whole is None else whole < ALPHA
            yield {
                "question": number,
                "judged": datetime.fromisoformat(record.judged).isoformat(timespec="seconds"),
                "scale": record.scale,
                "arm": test.arm,
                "baseline": test.baseline,
                "measure": test.measure,
                "seeds": "auto" if test.seeds is None else ", ".join(map(str, test.seeds)),
                "round": place,
                "p": p,
                "p_corrected": whole,
                "level": decision.level if decision else None,
                "significant": decision.discovery if decision else by_ledger,
            }
