"""Judge a table of losses from any source with the same noise model, corrections and verdicts as the pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean

from ablate.noise.difference import Difference
from ablate.noise.power import ALPHA, detectable
from ablate.noise.scatter import Scatter, scatter
from ablate.store.documents import StudyTrial, StudyTuning
from ablate.store.documents.tuning import RATE
from reports.findings.noise import StudyNoise, tuning_tables
from reports.findings.verdicts import verdict_of
from reports.statistics.estimates import holm
from reports.statistics.simultaneous import Evidence, of_p, together
from reports.statistics.stalled import FailureRates, Reliability
from reports.verdicts import Verdict
from reports.wording.arm_names import listed_seeds

PAIRED = 0.75
"""Share of two arms' runs whose seeds both arms must have for pairing; below it, arms are compared by their means. The
choice depends on no loss, so either test keeps its level. With a smaller share, pairing is less sensitive than
comparing all runs' means, unless seeds explain more than half of the variance."""


@dataclass(frozen=True)
class ArmLosses:
    """One arm: final losses by seed (infinite for a failed run), tuning losses by learning rate, and its cost."""

    name: str
    judging: Mapping[Hashable, float]
    tuning: Mapping[float, Sequence[float]]
    rate: float | None = None
    """Learning rate of the final runs."""
    cost: float | None = None
    """Mean cost over runs."""

    @cached_property
    def finished(self) -> dict[Hashable, float]:
        """Losses of the runs that did not fail."""
        return {seed: loss for seed, loss in self.judging.items() if math.isfinite(loss)}

    @property
    def reliability(self) -> Reliability:
        """Counts of runs and of failed runs."""
        return Reliability(len(self.judging) - len(self.finished), len(self.judging))


@dataclass(frozen=True)
class ArmContrast:
    """An arm against another: the difference of their losses at their best learning rates, and the verdict.

    `low` and `high` are the ends of an interval that excludes zero where `p`, corrected for all contrasts, is below
    0.05; an end may be infinite. They and `p` are None if nothing can be tested, with the `reason`. The difference is
    None only if an arm has no finite loss.
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
    paired: int
    """Number of paired seeds; 0 if the arms are compared by their means."""
    unused: tuple[UnusedRun, ...]
    """Finished runs of either arm that the difference does not use."""


@dataclass(frozen=True)
class UnusedRun:
    """A finished run that a contrast does not use, and why: its seed is `missing` or `failed` in the other arm, or it
    is `odd` in either."""

    arm: str
    seed: Hashable
    why: str


@dataclass(frozen=True)
class _Pair:
    """The runs that a comparison of two arms uses."""

    arm: ArmLosses
    base: ArmLosses
    scatter: Scatter
    """Noise model by which they are judged."""
    shared: tuple[Hashable, ...]
    """Seeds that finished in both arms, if the arms are paired."""

    @cached_property
    def left_out(self) -> Mapping[str, Hashable]:
        """The odd seed of each arm, if means leave it out. Pairing leaves out the other arm's run of that seed, too."""
        odd = self.scatter.odd
        names = (self.arm.name, self.base.name)
        return {name: odd[name].seed for name in names if name in odd and odd[name].left_out}

    @cached_property
    def seeds(self) -> list[Hashable]:
        """Paired seeds without odd ones."""
        odd = set(self.left_out.values())
        return [seed for seed in self.shared if seed not in odd]

    @property
    def differences(self) -> list[float]:
        """Paired differences, by seed."""
        return [self.arm.judging[seed] - self.base.judging[seed] for seed in self.seeds]

    def losses(self, arm: ArmLosses) -> list[float]:
        """Losses of one arm that its mean uses, if seeds are not paired."""
        odd = {self.left_out[arm.name]} if arm.name in self.left_out else set()
        return [loss for seed, loss in arm.finished.items() if seed not in odd]

    def difference(self, noise: StudyNoise) -> Difference | None:
        """The difference with its noise; None if it cannot be tested."""
        names = self.arm.name, self.base.name
        if self.shared:
            return noise.difference(names, self.differences)
        return noise.unpaired(names, self.losses(self.arm), self.losses(self.base))

    @property
    def estimate(self) -> float | None:
        """The difference alone; None if an arm has no finite loss."""
        if self.seeds:
            return fmean(self.differences)
        own, others = self.losses(self.arm), self.losses(self.base)
        return fmean(own) - fmean(others) if own and others else None

    def unused(self) -> tuple[UnusedRun, ...]:
        """Finished runs that the comparison does not use."""
        used, found = set(self.seeds), []
        for each, other in ((self.arm, self.base), (self.base, self.arm)):
            odd = {seed for name, seed in self.left_out.items() if self.shared or name == each.name}
            for seed in each.finished:
                if seed in odd:
                    found.append(UnusedRun(each.name, seed, "odd"))
                elif self.shared and seed not in used:
                    found.append(UnusedRun(each.name, seed, "failed" if seed in other.judging else "missing"))
        return tuple(found)


def judge(
    arms: Sequence[ArmLosses],
    pairs: Sequence[tuple[str, str]],
    noise: StudyNoise,
    margin: float | None = None,
    sign: int = 1,
) -> list[ArmContrast]:
    """Judge pairs of arms together, once, at 5 %, corrected by Holm.

    Studies, which keep a fifth of the 5 % for later rounds, use Dunnett's correction instead; it has no slack for the
    tests that choose the noise model. sign: −1 for losses that are negated scores; reasons then use the scores' own
    sign.
    """
    compared = _pairs(arms, pairs, noise)
    found = [pair.difference(noise) for pair in compared]
    evidence = [Evidence(gap.value, gap.p(), gap.interval) if gap else of_p(None) for gap in found]
    p_values, intervals = together(evidence)
    ties = holm([gap.p_within(margin) if gap and margin else 1.0 for gap in found])
    contrasts = []
    for pair, gap, p, tie, ends in zip(compared, found, p_values, ties, intervals, strict=True):
        names = pair.arm.name, pair.base.name
        contrast = ArmContrast(
            *names, pair.estimate, None, None, None, "cannot tell", "", None, len(pair.seeds), pair.unused()
        )
        if gap is not None:
            seen = detectable(gap.error, gap.freedom, ALPHA / len(pairs)) + gap.room(ALPHA / len(pairs))
            known = seen if math.isfinite(seen) else None
            contrast = replace(contrast, low=ends.low, high=ends.high, p=p, detectable=known)
        contrasts.append(_worded(contrast, pair, noise, tie, margin, sign))
    return contrasts


def noise_of(arms: Sequence[ArmLosses]) -> StudyNoise:
    """Noise model of all runs together: seeds are blocks for paired arms, and no blocks for the others."""
    tunings = [_tuning(arm) for arm in arms if arm.tuning]
    judging = {arm.name: arm.finished for arm in arms}
    means = {arm.name: fmean(arm.finished.values()) for arm in arms if arm.finished}
    tables = judging, *tuning_tables(tunings)
    apart = scatter(*tables, blocks=False)
    has_pairs = any(_shared(*pair) for pair in combinations(arms, 2))
    return StudyNoise(scatter(*tables) if has_pairs else apart, tuple(tunings), means, apart)


def smallest_detectable(arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise) -> float | None:
    """Difference that each of the pairs would find with 80 % probability, ignoring the choice of learning rates; None
    if a pair's noise is unknown."""
    gaps = [pair.difference(noise) for pair in _pairs(arms, pairs, noise)]
    seen = [detectable(gap.error, gap.freedom, ALPHA / len(pairs)) for gap in gaps if gap is not None]
    return max(seen) if len(seen) == len(pairs) and all(map(math.isfinite, seen)) else None


def _pairs(arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise) -> list[_Pair]:
    by_name = {arm.name: arm for arm in arms}
    found = []
    for own, other in pairs:
        arm, base = by_name[own], by_name[other]
        shared = _shared(arm, base)
        found.append(_Pair(arm, base, noise.scatter if shared else noise.apart, shared))
    return found


def _shared(arm: ArmLosses, base: ArmLosses) -> tuple[Hashable, ...]:
    """Seeds that finished in both arms; empty for a single seed, or if the arms share too few seeds to be paired
    (`PAIRED`)."""
    if 2 * len(arm.judging.keys() & base.judging.keys()) < PAIRED * (len(arm.judging) + len(base.judging)):
        return ()
    found = tuple(seed for seed in arm.finished if seed in base.finished)
    return found if len(found) > 1 or min(len(arm.finished), len(base.finished)) < 2 else ()


def _tuning(arm: ArmLosses) -> StudyTuning:
    """An arm's tuning runs in the form that studies store."""
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
    found: ArmContrast, pair: _Pair, noise: StudyNoise, tie: float, margin: float | None, sign: int
) -> ArmContrast:
    if not pair.arm.finished and pair.arm.judging:
        return replace(found, verdict="diverged", reason=f"no run of {found.arm} has a finite loss")
    if found.p is None or found.difference is None:
        return replace(found, reason=_why_untested(pair))
    failures = FailureRates(pair.arm.reliability, pair.base.reliability)
    verdict = verdict_of(found.difference, found.p, tie, failures)
    return replace(found, verdict=verdict, reason="; ".join(_reasons(found, verdict, pair, noise, margin, sign)))


def _why_untested(pair: _Pair) -> str:
    if not pair.base.finished:
        return f"no run of {pair.base.name} has a finite loss"
    few = [each.name for each in (pair.arm, pair.base) if len(each.finished) < 2]
    if few:
        return f"fewer than two finished seeds in {' and '.join(few)}: seed noise is unknown"
    if not pair.shared:
        return "all seeds of an arm have the same loss: seed noise is unknown"
    if len(pair.seeds) > 1:
        return "every seed gives the same difference, as rounded losses can: seed noise is unknown"
    return "fewer than two paired seeds"


def _reasons(
    found: ArmContrast, verdict: Verdict, pair: _Pair, noise: StudyNoise, margin: float | None, sign: int
) -> list[str]:
    """Reasons for a verdict, or against one."""
    arm, base = pair.arm, pair.base
    said = [f"{found.paired} paired seeds" if pair.shared else _unpaired(arm, base)]
    if pair.shared and found.paired < len(pair.shared):
        whole = sign * fmean(arm.judging[seed] - base.judging[seed] for seed in pair.shared)
        unlucky = all(pair.scatter.odd[name].above > 0 for name in pair.left_out)
        for_which = "applies to runs that go well" if unlucky else "without the outlying seed"
        said.append(f"{for_which}: over all {len(pair.shared)} seeds the difference is {whole:+.2g}")
    for each, other in ((arm, base), (base, arm)):
        lone = [run.seed for run in found.unused if run.arm == each.name and run.why != "odd"]
        if lone:
            said.append(f"not used: {listed_seeds(lone)} of {each.name} (no finished run of {other.name})")
    if verdict == "no difference":
        said.append(f"smaller than the margin of {margin:g}")
    expected = "arm and seed" if pair.shared else "arm"
    for each in (arm, base):
        if odd := pair.scatter.odd.get(each.name):
            then, side = " and is left out" if odd.left_out else "", replace(odd, above=sign * odd.above).side
            beyond = f"{abs(odd.above):.2g} {side} the value expected for its {expected}"
            said.append(f"seed {odd.seed} of {each.name} ended {beyond}{then}")
        if each.name in pair.scatter.noisier:
            said.append(f"{each.name} is noisier than the rest, so this pair uses its own noise estimate")
        if failed := each.reliability.failed:
            forbids = ", which rules out a verdict" if verdict == "inconclusive" and (found.p or 1) < ALPHA else ""
            said.append(f"{failed} of {each.reliability.runs} runs of {each.name} failed{forbids}")
        if each.tuning and not noise.penalty(each.name).is_bounded:
            said.append(f"the best learning rate of {each.name} is at the edge of those tried")
    if frozenset({arm.name, base.name}) in pair.scatter.quiet:
        said.append(
            "the two vary less against each other than against the rest, so this pair uses its own noise estimate"
        )
    if verdict == "inconclusive" and found.detectable is not None:
        said.append(f"could detect {found.detectable:.2g} with 80 % power")
    return said


def _unpaired(arm: ArmLosses, base: ArmLosses) -> str:
    both = len(arm.finished.keys() & base.finished.keys())
    few = f": the {both} in common are too few to pair" if both else ""
    return f"{len(arm.finished)} and {len(base.finished)} seeds, unpaired{few}"
