"""Does the difference from the baseline grow, shrink or flip with size, and with length? Pure.

    change_s = (L_arm − L_base at the last rung) − (L_arm − L_base at this rung)        of seed s

A rung is one size or training length of a ladder. The change uses the seeds that trained in all four runs. A paired
t-test decides whether the difference changes. Holm corrects it over all arms and rungs, of both axes, of this
judgement; the ledger keeps no changes. The difference *flips* if both differences exclude zero, on opposite sides. It
*grows* or *shrinks* if the mean of the two excludes zero. Otherwise it *changes*, in an unknown direction.

If every arm's learning rate was tuned at every rung, the interval has room for the uncertainty of all four choices.
With fixed rates it has none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from reports.judge.findings.noise import StudyNoise, study_noise
from reports.judge.findings.verdicts import REPEATED, why_withheld
from reports.judge.noise import ROUNDING
from reports.judge.noise.difference import Difference
from reports.judge.reading.collected import Collected
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Estimate, ends_as_json, estimate, holm
from reports.judge.statistics.simultaneous import Evidence, difference_intervals
from reports.judge.verdicts import ALPHA
from store.documents import JsonObject, StudyRung

Axis = Literal["size", "length"]
Word = Literal["grows", "shrinks", "flips", "changes", "cannot tell", "no verdict"]
UNKNOWN = Evidence.of_p(None)


@dataclass(frozen=True)
class Gap:
    """An arm's paired difference from the baseline at one rung, over the seeds that trained in both arms there.

    `flops` are the baseline's; `axis` is None at the last rung.
    """

    arm: str
    rung: str
    axis: Axis | None
    flops: float
    difference: Estimate


@dataclass(frozen=True)
class Change:
    """Change of an arm's difference from the baseline between a rung (a size or length) and the last one.

    `before` and `after` are the differences at the two rungs over the same seeds. `change` is after − before, with an
    interval that excludes zero where `p`, corrected for all changes of the study, is significant. `reason` says why
    there is no verdict, or what prevents one.
    """

    arm: str
    rung: str
    last: str
    axis: Axis
    before: Estimate | None
    after: Estimate | None
    change: Estimate | None
    p: float | None = None
    word: Word = "cannot tell"
    reason: str | None = None

    def document(self) -> JsonObject:
        """JSON form, for `ablate run --json`."""
        change = self.change
        return {
            "arm": self.arm,
            "rung": self.rung,
            "last": self.last,
            "axis": self.axis,
            "difference_at_rung": self.before.mean if self.before else None,
            "difference_at_last": self.after.mean if self.after else None,
            "change": change.mean if change else None,
            "change_interval": ends_as_json(change.low, change.high) if change else None,
            "p": self.p,
            "seeds": len(change.values) if change else 0,
            "verdict": self.word,
            "reason": self.reason,
        }


def gaps(data: Collected) -> tuple[Gap, ...]:
    """Difference from the baseline of every arm at every rung, in the order of the ladder."""
    found = []
    for arm in _others(data):
        for rung in data.study.ladder:
            pairs = _pairs(data.rungs.filter(rung=rung.name), arm, data.study.baseline)
            difference = estimate((pairs["loss"] - pairs["loss_base"]).to_list())
            if difference is not None:
                found.append(Gap(arm, rung.name, rung.axis, float(pairs["flops_base"][0]), difference))
    return tuple(found)


def changes(data: Collected, repeated: Collection[str] = ()) -> tuple[Change, ...]:
    """Changes of every arm from every other rung to the last, corrected together.

    repeated: arms whose seeds at the last rung were judged before; their changes have no verdict either.
    """
    plain = [_plain(data, arm, rung, arm in repeated) for arm in _others(data) for rung in data.study.ladder[:-1]]
    runs = data.rungs
    known = {rung.name: study_noise(rung.tuning, runs.filter(rung=rung.name)) for rung in data.study.ladder}
    tests = [_evidence(each, data.study.baseline, known) or UNKNOWN for each in plain]
    corrected, intervals = holm([test.p for test in tests]), difference_intervals(tests)
    found = []
    for each, test, p, interval in zip(plain, tests, corrected, intervals, strict=True):
        if test is UNKNOWN or each.before is None or each.after is None or each.change is None:
            found.append(each)
            continue
        change = replace(each.change, low=interval.low, high=interval.high)
        word = _word(each.before, each.after) if p < ALPHA else each.word
        found.append(replace(each, p=p, change=change, word=word))
    return tuple(found)


def _others(data: Collected) -> list[str]:
    return [arm.name for arm, base in data.study.pairs if base.name == data.study.baseline]


def _pairs(runs: pl.DataFrame, arm: str, baseline: str) -> pl.DataFrame:
    """Finished runs of an arm, each joined with the baseline's run of the same rung and seed."""
    done = runs.filter(status="finished")
    return done.filter(arm=arm).join(done.filter(arm=baseline), on=["rung", "seed"], suffix="_base").sort("seed")


def _plain(data: Collected, arm: str, rung: StudyRung, repeated: bool) -> Change:
    """Change of one arm from one rung, uncorrected and without a verdict."""
    assert rung.axis is not None  # only the last has none
    last, baseline = data.study.ladder[-1].name, data.study.baseline
    runs = data.rungs.filter(pl.col("rung").is_in([rung.name, last]), pl.col("arm").is_in([arm, baseline]))
    # with `seeds: auto` only the last rung is given more seeds
    runs = runs.filter(pl.col("seed").is_in(runs.filter(rung=rung.name)["seed"].to_list()))
    pairs = _pairs(runs, arm, baseline).with_columns(gap=pl.col("loss") - pl.col("loss_base"))
    both = pairs.filter(rung=rung.name).join(pairs.filter(rung=last), on="seed", suffix="_last").sort("seed")
    found = Change(
        arm,
        rung.name,
        last,
        rung.axis,
        before=estimate(both["gap"].to_list()),
        after=estimate(both["gap_last"].to_list()),
        change=estimate((both["gap_last"] - both["gap"]).to_list()),
    )
    unjudged = why_withheld(data.study, runs, "comparison") or (REPEATED if repeated else None)
    if unjudged:
        return replace(found, word="no verdict", reason=unjudged)
    failed = runs.filter(pl.col("status").is_in(FAILED))  # the remaining seeds do not represent the arm
    told = [f"seed {run['seed']} of {run['arm']} {run['status']} at {run['rung']}" for run in failed.to_dicts()]
    return replace(found, reason=", ".join(told) or None)


def _evidence(found: Change, baseline: str, known: Mapping[str, StudyNoise]) -> Evidence | None:
    """Evidence for a change; None if it may not, or cannot, be tested. known: the noise at each rung."""
    if found.reason is not None or found.change is None:
        return None
    values = np.asarray(found.change.values)
    if len(values) < 2 or float(np.ptp(values)) <= ROUNDING:
        return None
    test = Difference.of(found.change.mean, float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1)
    (arm_last, base_last), (arm_here, base_here) = (
        (known[rung].penalty(found.arm), known[rung].penalty(baseline)) for rung in (found.last, found.rung)
    )
    # Uncertainty of tuning: a better choice of two of the four would enlarge the change, of the other two shrink it.
    test = replace(test, own=arm_last.plus(base_here), other=base_last.plus(arm_here))
    return Evidence.of(test)


def _word(before: Estimate, after: Estimate) -> Word:
    """Verdict word for a significant change."""
    if before.excludes(0) and after.excludes(0) and before.mean * after.mean < 0:
        return "flips"
    middle = estimate([(one + other) / 2 for one, other in zip(before.values, after.values, strict=True)])
    if middle is None or not middle.excludes(0):
        return "changes"
    return "grows" if (after.mean - before.mean) * middle.mean > 0 else "shrinks"
