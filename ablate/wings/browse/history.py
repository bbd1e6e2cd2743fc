"""The history of a ledger: every comparison ever judged, by question, and its current significance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import polars as pl

from ablate.wings.browse.online_fdr import Decision, lord, saffron
from reports.judge.findings.judging import difference_claim, joined, judgements, questions
from reports.judge.statistics.ledger import LedgerClaim, corrected, rounds
from reports.judge.verdicts import ALPHA
from store.documents import LedgerRecord, LedgerTest
from store.result_columns import Schema

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


@dataclass(frozen=True)
class HistoryEntry:
    """A comparison, in the order of first judgement.

    `p` is its own, `p_corrected` is corrected for the whole ledger, so that at most 5 % of questions have any error.
    `level` and `discovery` belong to an online rule for the false-discovery rate, if one was chosen: at most 5 % of its
    discoveries are expected to be wrong.
    """

    question: int
    judged: str
    scale: str
    arm: str
    baseline: str
    measure: str
    seeds: tuple[int, ...] | None
    round: int
    p: float | None
    p_corrected: float | None
    level: float | None
    discovery: bool | None

    @property
    def significant(self) -> bool | None:
        """Verdict by the chosen rule or, without one, by the corrected p-value."""
        if self.level is not None:
            return self.discovery
        return None if self.p_corrected is None else self.p_corrected < ALPHA


def history(
    ledger: Sequence[LedgerRecord], rule: Rule | None = None, elsewhere: Sequence[Sequence[LedgerRecord]] = ()
) -> tuple[HistoryEntry, ...]:
    """All valid comparisons, including those of the same question in other names' ledgers; none if nothing was judged
    under this name. Tests that reuse some of their own seeds are left out."""
    if not ledger:
        return ()
    together, others = joined((), ledger, elsewhere)
    told = [difference_claim(test) for record in others for test in record.tests if test.p is not None]
    found: list[HistoryEntry] = []
    for number, question in enumerate(questions(together), start=1):
        found += _entries(number, question, told, rule)
    return tuple(found)


def _entries(
    number: int, ledger: Sequence[LedgerRecord], told: Sequence[LedgerClaim], rule: Rule | None
) -> Iterator[HistoryEntry]:
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
            yield HistoryEntry(
                question=number,
                judged=datetime.fromisoformat(record.judged).isoformat(timespec="seconds"),
                scale=record.scale,
                arm=test.arm,
                baseline=test.baseline,
                measure=test.measure,
                seeds=test.seeds,
                round=place,
                p=p,
                p_corrected=p_corrected[claim],
                level=decision.level if decision else None,
                discovery=decision.discovery if decision else None,
            )


def ledger_frame(entries: Iterable[HistoryEntry]) -> pl.DataFrame:
    rows = [
        {
            **{name: getattr(entry, name) for name in LEDGER if name != "seeds"},
            "seeds": "auto" if entry.seeds is None else ", ".join(map(str, entry.seeds)),
        }
        for entry in entries
    ]
    return pl.DataFrame(rows, schema=LEDGER)
