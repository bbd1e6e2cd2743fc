"""Evidence on one arm against another by the measure that a claim names. Pure.

Losses use the study's own verdict, costs the intervals of `findings.comparison`, scores those of
`scores.items`. Accuracies on the trained task are compared over seeds, at 5 % divided by the number of
accuracies that the study's claims compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads its submodules on first use

from reports.judge.findings.comparison import ArmCosts, Judgement, cache_ratio
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import level, why_withheld
from reports.judge.noise.power import detectable
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Estimate, Failures, estimate, exact
from reports.judge.verdicts import Verdict
from store.documents.claims import ACCURACY, COSTS, LOSS
from store.documents.study import UNJUDGED

SAME_COST = 1.005
"""Factor below which declared costs count as equal."""
SWAPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
UNDECIDED = "fewer than two seeds trained in both arms, or every seed gives the same difference"


@dataclass(frozen=True)
class ClaimEvidence:
    """Measured `effect` of an arm: a difference, or a ratio of costs.

    `seen` is the smallest effect that would have been found with 80 % probability. `ahead` is the interval of the arm's
    lead, in the measure's unit, or as a logarithm for costs; a lead below `alike` is none. `verdict` is one of better,
    worse, no difference, inconclusive, cannot tell and no verdict; `reason` explains the last two.
    """

    verdict: Verdict
    effect: Estimate | None = None
    seen: float | None = None
    ahead: tuple[float, float] | None = None
    alike: float | None = None
    reason: str = ""

    def swapped(self) -> ClaimEvidence:
        """The same evidence with the arms' roles swapped; the effect stays."""
        ahead = None if self.ahead is None else (-self.ahead[1], -self.ahead[0])
        return replace(self, verdict=SWAPPED.get(self.verdict, self.verdict), ahead=ahead)


def evidence(summary: StudySummary, arm: str, against: str | None, measure: str) -> ClaimEvidence:
    """Evidence on an arm against another, or on a factor of a design (`against` is None)."""
    if measure == LOSS:
        return _loss(summary, arm, against)
    if measure in COSTS:
        return _cost(summary, arm, against, measure)
    if against is None:
        return untested("a design estimates effects on losses and costs only")
    return _accuracy(summary, arm, against) if measure == ACCURACY else _score(summary, arm, against, measure)


def untested(reason: str, effect: Estimate | None = None) -> ClaimEvidence:
    return ClaimEvidence("no verdict", effect, reason=reason)


def _pair(summary: StudySummary, arm: str, against: str | None) -> tuple[Judgement | None, bool]:
    """The study's comparison of two arms, and whether it has them in reverse order."""
    for found in summary.judgements:
        if found.arm == arm and against in (None, found.base):
            return found, False
        if (found.arm, found.base) == (against, arm):
            return found, True
    return None, False


def _loss(summary: StudySummary, arm: str, against: str | None) -> ClaimEvidence:
    found, reverse = _pair(summary, arm, against)
    if found is None:
        if reason := why_withheld(summary.study, summary.runs):
            return untested(reason)
        return ClaimEvidence("cannot tell", reason=f"the study declares no contrast of {arm} and {against}")
    comparison, margin = found.comparison, summary.study.margin
    difference = comparison.difference
    effect = difference.negative() if difference and reverse else difference
    if found.withheld:
        return untested(found.withheld, effect)
    verdict: Verdict = "worse" if found.verdict in FAILED else found.verdict
    seen = comparison.detectable.value if comparison.detectable else None
    reason = UNDECIDED if verdict == "cannot tell" else ""
    ahead = None
    if difference is not None and difference.low is not None and difference.high is not None:
        ahead = (-difference.high, -difference.low)
    plain = ClaimEvidence(verdict, effect, seen, ahead, margin, reason)
    return plain.swapped() if reverse else plain


def _cost(summary: StudySummary, arm: str, against: str | None, measure: str) -> ClaimEvidence:
    if summary.study.scale in UNJUDGED:
        return untested(str(why_withheld(summary.study, summary.runs)))
    found, reverse = _pair(summary, arm, against)
    costs = found.comparison.costs if found else ArmCosts()
    beside = f" against {against}" if against else ""
    if measure in ("kv_bytes", "parameters"):
        ratio = _declared(summary, arm, against, measure)
        return _of_ratio(ratio) if ratio else untested(f"the ratio of {measure} is unknown")
    if measure == "memory":
        return _measured(costs.memory, reverse, f"the study does not measure the memory of {arm}{beside}")
    speed = costs.training if measure == "train_time" else costs.decoding
    _, why = costs.untimed.get("training" if measure == "train_time" else "decoding", ("", None))
    reason = why or costs.unmeasured or summary.unmeasured or f"the study does not time {arm}{beside}"
    return _measured(speed, not reverse, reason)


def _declared(summary: StudySummary, arm: str, against: str | None, measure: str) -> Estimate | None:
    """Exact ratio of a cost that the architecture determines."""
    if against is None:
        effect = next(each for each in summary.effects if each.effect.name == arm)
        ratio = effect.comparison.costs.kv_ratio if measure == "kv_bytes" else None
    else:
        own, other = summary.study.arm(arm), summary.study.arm(against)
        ratio = cache_ratio(own, other)[0] if measure == "kv_bytes" else own.parameters / other.parameters
    return exact(ratio) if ratio else None


def _measured(ratio: Estimate | None, inverted: bool, reason: str) -> ClaimEvidence:
    if ratio is None:
        return untested(reason)
    return _of_ratio(ratio.inverse() if inverted else ratio)


def _of_ratio(ratio: Estimate) -> ClaimEvidence:
    """Evidence from a cost ratio: less is better. An exact ratio counts as equal within a factor of `SAME_COST`."""
    low, high = math.log(ratio.low or ratio.mean), math.log(ratio.high or ratio.mean)
    exact, alike = ratio.sd is None, math.log(SAME_COST)
    verdict = ratio.verdict(1)
    if exact and abs(low) < alike:
        verdict = "no difference"
    seen = None if exact else math.exp(_detectable(ratio.sd, len(ratio.values), (high - low) / 2) or 0.0)
    return ClaimEvidence(verdict, ratio, seen, (-high, -low), alike if exact else None)


def _detectable(sd: float | None, count: int, half: float) -> float | None:
    """Smallest detectable effect of a t-test over `count` values, at the level of an interval with this half width."""
    if not sd:
        return None
    error = sd / math.sqrt(count)
    return detectable(error, count - 1, alpha=2 * float(scipy.special.stdtr(count - 1, -half / error)))


def _accuracy(summary: StudySummary, arm: str, against: str) -> ClaimEvidence:
    reason = why_withheld(summary.study, summary.runs)
    finished = summary.runs.filter(status="finished").select("arm", "seed", "accuracy").drop_nulls()
    both = [finished.filter(arm=name).drop("arm") for name in (arm, against)]
    pairs = both[0].join(both[1], on="seed", suffix="_other").sort("seed")
    values = (pairs["accuracy"] - pairs["accuracy_other"]).to_list()
    asked = sum(len(claim.pairs) for claim in summary.study.claims if claim.measure == ACCURACY)
    alpha = level(summary.study, summary.study.arm(arm), summary.study.arm(against)) / max(1, asked)
    effect = estimate(values, alpha)
    if reason or effect is None:
        return untested(reason or "no seed has an accuracy in both arms", effect)
    if effect.low is None or effect.high is None or (np.ptp(values) == 0 and values[0] != 0):
        return ClaimEvidence("cannot tell", effect, reason=UNDECIDED)
    verdict = effect.negative().verdict(0)
    seen = _detectable(effect.sd, len(values), (effect.high - effect.low) / 2)
    return ClaimEvidence(verdict, effect, seen, (effect.low, effect.high))


def _score(summary: StudySummary, arm: str, against: str, measure: str) -> ClaimEvidence:
    """Evidence from an evaluation's score, which the study compares with the baseline alone."""
    task, _, metric = measure.rpartition("/")
    reverse = arm == summary.baseline
    other = against if reverse else arm
    if summary.baseline not in (arm, against):
        return untested(f"scores are compared only with {summary.baseline}")
    of = next(each for each in summary.arms if each.name == other)
    item = next((each for each in of.items if (each.task, each.metric) == (task, metric)), None)
    if item is None or item.difference is None:
        return untested(item.reason if item and item.reason else f"{measure} was not evaluated in both arms")
    effect = Estimate(item.difference, item.low, item.high, None, item.by_seed)
    shown = effect.negative() if reverse else effect
    if of.withheld:
        return untested(of.withheld, shown)
    if item.higher_is_better is None or effect.low is None or effect.high is None:
        return ClaimEvidence(
            "cannot tell", shown, reason="it is unknown which way it is better, or how wide its interval is"
        )
    ahead = (effect.low, effect.high) if item.higher_is_better else (-effect.high, -effect.low)
    no_item_differs = effect.low < 0 == effect.mean < effect.high and len(item.seeds) > 1
    if item.p is None and not no_item_differs:
        return ClaimEvidence("cannot tell", shown, reason=UNDECIDED)
    failures = of.comparison.failures if of.comparison else Failures()
    verdict: Verdict = "inconclusive" if item.p is None else item.verdict(failures)
    plain = ClaimEvidence(verdict, shown, None, ahead)
    return plain.swapped() if reverse else plain
