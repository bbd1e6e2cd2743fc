"""Results of a search: its trials, the best of them, and their scores on fresh seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import polars as pl
from scipy import special  # scipy.stats takes seconds to load

from ablate.wings.search.documents import SearchDocument, SearchFolder, TrialRecord
from ablate.wings.search.shown.fresh_seeds import FreshScore, SearchStanding, confirmed_scores, fresh_scores, standings
from reports.judge.statistics.estimates import Estimate
from store import Store
from store.documents.study import UNJUDGED
from store.errors import ReportError

CURVE_POINTS = 60
NO_TRIAL = -1
"""Number of a base that is not a trial."""
MOST_CURVES = 1_000
"""Most runs whose loss curves a page shows."""


@dataclass(frozen=True)
class TrialRun:
    """A run of a trial: its status, and its training loss by step, thinned."""

    digest: str
    seed: int | None
    status: str
    steps: tuple[int, ...]
    losses: tuple[float | None, ...]


@dataclass(frozen=True)
class Gap:
    """The best of several trials against the base on fresh seeds: both estimates, and the difference with its 95 %
    interval, by Student's t with the standard deviation pooled over both, at a level divided by the number of trials.
    """

    trial: int
    best: Estimate
    base: Estimate
    difference: float
    half_width: float | None

    @classmethod
    def of(cls, trial: int, best: Estimate, base: Estimate, trials: int = 1) -> Gap:
        sides, difference = (best, base), best.mean - base.mean
        freedom = sum(len(side.values) - 1 for side in sides)
        if freedom == 0:
            return cls(trial, best, base, difference, None)
        squares = sum((value - side.mean) ** 2 for side in sides for value in side.values)
        error = math.sqrt(squares / freedom * sum(1 / len(side.values) for side in sides))
        return cls(trial, best, base, difference, -float(special.stdtrit(freedom, 0.025 / trials)) * error)

    @property
    def is_clear(self) -> bool:
        return self.half_width is not None and abs(self.difference) > self.half_width


@dataclass(frozen=True)
class SearchSummary:
    """A search, the scores of its best trials on fresh seeds, and the trials' runs by digest."""

    document: SearchDocument
    fresh: tuple[FreshScore, ...]
    runs: Mapping[str, TrialRun] = field(default_factory=dict)

    @property
    def objectives(self) -> Mapping[str, str]:
        """Direction of optimisation by objective."""
        return self.document.objectives

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        return self.document.trials

    @cached_property
    def scored(self) -> tuple[TrialRecord, ...]:
        """Trials within the limits that trained for the whole budget without diverging. Repeats of a trial with further
        seeds are left out, since they enter its score."""
        return tuple(t for t in self.trials if t.is_scored and not t.beyond and t.repeats is None)

    @property
    def is_judged(self) -> bool:
        """Whether its runs are long enough for conclusions."""
        return self.document.scale not in UNJUDGED

    @cached_property
    def best(self) -> tuple[TrialRecord, ...]:
        """The best trial, or the front of several objectives; empty if runs are too short for conclusions."""
        return tuple(trial for trial in self.trials if trial.best and self.is_judged)

    @cached_property
    def best_numbers(self) -> frozenset[int]:
        return frozenset(trial.number for trial in self.best)

    @cached_property
    def standings(self) -> tuple[SearchStanding, ...]:
        """Settings with scores on fresh seeds."""
        return tuple(standings(self.document, self.fresh))

    def standing(self, number: int) -> SearchStanding | None:
        """Standing of a trial's settings on fresh seeds, if any were used on them."""
        return next((each for each in self.standings if each.trial == number), None)

    @cached_property
    def base(self) -> TrialRecord | None:
        """The base among the trials; a record without a number if it is not one of them, None if it has no score."""
        base = self.document.base
        known = next((trial for trial in self.scored if base.runs and trial.runs == base.runs), None)
        if known is not None or base.values is None or None in base.values:
            return known
        return TrialRecord(
            number=NO_TRIAL,
            state="finished",
            best=False,
            settings={},
            params=base.params,
            distributions={},
            values=base.values,
            reached=(),
            curve={},
            runs=base.runs,
            error=None,
        )

    @cached_property
    def against_base(self) -> Gap | None:
        """The first objective of the best other trial minus that of the base, on the same fresh seeds; None without
        them."""
        first = next(iter(self.objectives))
        rows = {each.arm: each.fresh for each in self.fresh if each.objective == first}
        base = rows.pop(self.document.base.name, None)
        sign = 1 if self.objectives[first] == "minimize" else -1
        known = {arm: fresh for arm, fresh in rows.items() if fresh is not None}
        if base is None or not known:
            return None
        best = min(known, key=lambda arm: sign * known[arm].mean)
        return Gap.of(int(best.removeprefix("trial_")), known[best], base, len(known))

    @property
    def dropped(self) -> tuple[int, ...]:
        """Members of the front that fresh seeds removed from it."""
        if len(self.objectives) < 2:
            return ()
        return tuple(each.trial for each in self.standings if not each.is_best)

    @property
    def states(self) -> Counter[str]:
        return Counter(trial.state for trial in self.trials)

    @property
    def diverged(self) -> int:
        return sum(trial.values is not None and not trial.is_scored for trial in self.trials)


def read_search(folder: Path, curves: bool = True) -> SearchSummary:
    """Read a search. curves: include the trials' runs and their losses. Raises ReportError if there is no search."""
    document = SearchFolder(folder).read()
    if document is None:
        raise ReportError(f"{folder} is not the folder of a search: it has no search.json")
    objectives, base = list(document.objectives), document.base
    searched = {f"trial_{trial.number}": trial.values for trial in document.trials}
    searched[base.name] = base.values
    scores = {
        arm: {name: value for name, value in zip(objectives, values, strict=True) if value is not None}
        for arm, values in searched.items()
        if values and None not in values
    }
    store = Store.of_study(folder)
    first = [trial for trial in document.trials if trial.repeats is None and trial.runs]
    runs = {base.name: base.runs[0]} if base.runs else {}
    runs |= {f"trial_{trial.number}": trial.runs[0] for trial in first}
    fresh = fresh_scores(store, document.name, document.scale, scores, objectives, runs)
    fresh = fresh or tuple(confirmed_scores(document, scores))
    found = SearchSummary(document, fresh, _runs(store, document) if curves else {})
    # scores on fresh seeds replace those by which trials were selected
    known = {each.trial: each for each in found.standings}
    best = {trial.number for trial in found.trials if trial.best and trial.number not in known}
    if len(objectives) > 1:
        best |= {each.trial for each in found.standings if each.is_best}
    elif known:
        best = {found.standings[0].trial}
    trials = []
    for trial in found.trials:
        each = known.get(trial.number)
        means = tuple(each.means[name] for name in objectives) if each else trial.values
        is_best = trial.number in best and found.is_judged
        trials.append(trial.model_copy(update={"values": means, "best": is_best}))
    of_base = {each.objective: each.fresh.mean for each in fresh if each.arm == base.name and each.fresh}
    if base.values is not None:
        values = (of_base.get(name, value) for name, value in zip(objectives, base.values, strict=True))
        base = base.model_copy(update={"values": tuple(values)})
    return replace(found, document=document.model_copy(update={"trials": tuple(trials), "base": base}))


def _runs(store: Store, document: SearchDocument) -> dict[str, TrialRun]:
    """Runs of the trials; the first `MOST_CURVES`, beginning with those of the best trials, have curves."""
    trials = sorted(document.trials, key=lambda trial: not trial.best)
    digests = list(dict.fromkeys(digest for trial in trials for digest in trial.runs))
    if not digests:
        return {}
    logged, counts = store.read_many_metrics(digests[:MOST_CURVES], ("step", "loss"))
    ends = list(accumulate(counts)) + [0] * len(digests)
    curves = {digest: logged[end - count : end] for digest, count, end in zip(digests, counts, ends, strict=False)}
    return {digest: _run(store, digest, curves.get(digest)) for digest in digests}


def _run(store: Store, digest: str, logged: pl.DataFrame | None) -> TrialRun:
    run, result = store.read_run(digest), store.read_result(digest)
    points = () if logged is None else logged.drop_nulls("loss").rows()
    step = max(1, -(-len(points) // CURVE_POINTS))
    thinned = points[::-1][::step][::-1]
    status = result.status if result else "absent" if run is None else "partial"
    return TrialRun(
        digest=digest,
        seed=run.seed if run else None,
        status=status,
        steps=tuple(int(at) for at, _ in thinned),
        losses=tuple(loss if math.isfinite(loss) else None for _, loss in thinned),
    )
