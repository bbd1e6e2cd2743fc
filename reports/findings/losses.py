"""Judge a table of anybody's losses by the rules of the pages: the same noise model, corrections and words. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ablate.noise.difference import Difference
from ablate.noise.power import ALPHA, detectable
from ablate.noise.scatter import scatter
from ablate.store.documents import StudyTrial, StudyTuning
from ablate.store.documents.tuning import RATE
from reports.findings.noise import StudyNoise, tuning_tables
from reports.findings.verdicts import verdict_of
from reports.statistics.estimates import holm
from reports.statistics.simultaneous import Evidence, difference_intervals, of_p
from reports.statistics.stalled import Failures, Reliability
from reports.verdicts import Verdict


@dataclass(frozen=True)
class ArmLosses:
    """One arm: its final losses by seed (infinite where a run failed), tuning losses by rate, and what it cost."""

    name: str
    judging: Mapping[Hashable, float]
    tuning: Mapping[float, Sequence[float]]
    rate: float | None = None
    """The rate of the judging runs."""
    cost: float | None = None
    """Mean over runs, in whatever unit."""

    @property
    def finished(self) -> dict[Hashable, float]:
        """Losses of the runs that did not fail."""
        return {seed: loss for seed, loss in self.judging.items() if math.isfinite(loss)}

    @property
    def reliability(self) -> Reliability:
        """Count of its runs and of those that failed."""
        return Reliability(len(self.judging) - len(self.finished), len(self.judging))


@dataclass(frozen=True)
class ArmContrast:
    """An arm against another: the difference of their losses at their best rates, and what may be said of it.

    `low` and `high` are the ends of an interval that excludes zero where `p`, corrected for all contrasts, is below
    0.05; an end may be infinite. All are None where nothing can be tested, for the `reason`.
    """

    arm: str
    against: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: Verdict
    reason: str
    detectable: float | None


def judge(
    arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise, margin: float | None = None
) -> list[ArmContrast]:
    """Judge pairs of arms together, corrected by Holm."""
    by_name = {arm.name: arm for arm in arms}
    found = [_difference(noise, by_name[arm], by_name[base]) for arm, base in pairs]
    evidence = [Evidence(gap.value, gap.p(), gap.interval) if gap else of_p(None) for gap in found]
    p_values, intervals = holm([each.p for each in evidence]), difference_intervals(evidence)
    ties = holm([gap.p_within(margin) if gap and margin else 1.0 for gap in found])
    contrasts = []
    for (arm, base), gap, p, tie, ends in zip(pairs, found, p_values, ties, intervals, strict=True):
        contrast = ArmContrast(arm, base, None, None, None, None, "cannot tell", "", None)
        if gap is not None:
            seen = detectable(gap.error, gap.freedom, len(pairs)) + gap.room(ALPHA / len(pairs))
            known = seen if math.isfinite(seen) else None
            contrast = replace(contrast, difference=gap.value, low=ends.low, high=ends.high, p=p, detectable=known)
        contrasts.append(_worded(contrast, by_name[arm], by_name[base], noise, tie, margin))
    return contrasts


def noise_of(arms: Sequence[ArmLosses]) -> StudyNoise:
    """The noise of all runs together. Seeds are blocks where arms that trained share at least two of them."""
    tunings = [_tuning(arm) for arm in arms if arm.tuning]
    judging = {arm.name: arm.finished for arm in arms}
    means = {arm.name: fmean(arm.finished.values()) for arm in arms if arm.finished}
    trained = [arm for arm in arms if len(arm.finished) > 1]
    shared = all(_shared(trained[0], arm) for arm in trained[1:])
    return StudyNoise(scatter(judging, *tuning_tables(tunings), blocks=shared), tuple(tunings), means)


def smallest_detectable(arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise) -> float | None:
    """The difference that each of the pairs would find with 80 % probability, rates aside; None where a pair's noise is
    not known."""
    by_name = {arm.name: arm for arm in arms}
    gaps = [_difference(noise, by_name[arm], by_name[base]) for arm, base in pairs]
    seen = [detectable(gap.error, gap.freedom, len(pairs)) for gap in gaps if gap is not None]
    return max(seen) if len(seen) == len(pairs) and all(map(math.isfinite, seen)) else None


def _shared(arm: ArmLosses, base: ArmLosses) -> list[Hashable]:
    """Seeds that finished in both; none if it is one alone."""
    found = [seed for seed in arm.finished if seed in base.finished]
    return found if len(found) > 1 else []


def _difference(noise: StudyNoise, arm: ArmLosses, base: ArmLosses) -> Difference | None:
    """Over shared seeds, odd ones left out; of the means where seeds are not shared."""
    seeds = [seed for seed in _shared(arm, base) if seed not in _left_out(noise, arm, base)]
    if seeds:
        return noise.difference((arm.name, base.name), [arm.judging[seed] - base.judging[seed] for seed in seeds])
    return noise.unpaired((arm.name, base.name), [*arm.finished.values()], [*base.finished.values()])


def _left_out(noise: StudyNoise, arm: ArmLosses, base: ArmLosses) -> set[Hashable]:
    """Odd seeds of either, which are in neither mean."""
    odd = (noise.odd.get(each.name) for each in (arm, base))
    return {each.seed for each in odd if each is not None and each.left_out}


def _tuning(arm: ArmLosses) -> StudyTuning:
    """The tuning runs of an arm, as studies store theirs."""
    trials = tuple(
        StudyTrial(settings={RATE: rate}, losses=tuple(loss if math.isfinite(loss) else None for loss in of), runs=())
        for rate, of in sorted(arm.tuning.items())
    )
    rates = sorted(arm.tuning)
    means = {rate: fmean(of) for rate, of in arm.tuning.items()}
    best = min(rates, key=lambda rate: means[rate])
    taken = best if arm.rate is None else arm.rate
    at_edge = best in (rates[0], rates[-1]) or not rates[0] <= taken <= rates[-1]
    return StudyTuning(
        arm=arm.name,
        chosen={RATE: taken},
        edges=(RATE,) if at_edge else (),
        curve=(),
        reason=None,
        fraction=1.0,
        trials=trials,
        coarse=(),
    )


def _worded(
    found: ArmContrast, arm: ArmLosses, base: ArmLosses, noise: StudyNoise, tie: float, margin: float | None
) -> ArmContrast:
    failures = Failures(arm.reliability, base.reliability)
    if not arm.finished and arm.judging:
        return replace(found, verdict="diverged", reason=f"no run of {arm.name} has a finite loss")
    if found.p is None or found.difference is None:
        few = [each.name for each in (arm, base) if len(each.finished) < 2]
        reason = f"{' and '.join(few)}: fewer than two seeds" if few else "all seeds differ by the same amount"
        return replace(found, reason=reason)
    verdict = verdict_of(found.difference, found.p, tie, failures)
    return replace(found, verdict=verdict, reason="; ".join(_reasons(found, verdict, arm, base, noise, margin)))


def _reasons(
    found: ArmContrast, verdict: Verdict, arm: ArmLosses, base: ArmLosses, noise: StudyNoise, margin: float | None
) -> list[str]:
    """Grounds of a verdict, and what forbids one."""
    shared, left_out = _shared(arm, base), _left_out(noise, arm, base)
    paired = [seed for seed in shared if seed not in left_out]
    said = [
        f"{len(paired)} paired seeds" if shared else f"{len(arm.finished)} and {len(base.finished)} seeds, unpaired"
    ]
    if len(paired) < len(shared):
        whole = fmean(arm.judging[seed] - base.judging[seed] for seed in shared)
        said.append(f"for runs that go well: over all {len(shared)} seeds the difference is {whole:+.2g}")
    if verdict == "no difference":
        said.append(f"smaller than the margin of {margin:g}")
    for each in (arm, base):
        if odd := noise.odd.get(each.name):
            then = " and is left out" if odd.left_out else ""
            beyond = f"{abs(odd.above):.2g} {odd.side} what its arm and its seed explain"
            said.append(f"seed {odd.seed} of {each.name} ended {beyond}{then}")
        if each.name in noise.scatter.noisier:
            said.append(f"{each.name} is noisier than the rest, so this pair's own scatter is used")
        if failed := each.reliability.failed:
            forbids = ", which forbids a verdict" if verdict == "inconclusive" and (found.p or 1) < ALPHA else ""
            said.append(f"{failed} of {each.reliability.runs} runs of {each.name} failed{forbids}")
        if each.tuning and not noise.penalty(each.name).is_bounded:
            said.append(f"the best rate of {each.name} is at the edge of those tried")
    if verdict == "inconclusive" and found.detectable is not None:
        said.append(f"would detect {found.detectable:.2g} with 80 % power")
    return said
