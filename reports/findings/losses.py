"""Judge a table of losses from any source with the same noise model, corrections and verdicts as the pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean

from ablate.noise.power import ALPHA, detectable
from ablate.noise.scatter import scatter
from ablate.store.documents import StudyTrial, StudyTuning
from ablate.store.documents.tuning import RATE
from reports.findings.loss_pairs import ArmContrast, ArmLosses, Pair, shared_seeds
from reports.findings.noise import StudyNoise, tuning_tables
from reports.findings.verdicts import verdict_of
from reports.statistics.estimates import holm
from reports.statistics.simultaneous import Evidence, of_p, together
from reports.statistics.stalled import FailureRates
from reports.verdicts import Verdict
from reports.wording.arm_names import listed_seeds


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
    has_pairs = any(shared_seeds(*pair) for pair in combinations(arms, 2))
    return StudyNoise(scatter(*tables) if has_pairs else apart, tuple(tunings), means, apart)


def smallest_detectable(arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise) -> float | None:
    """Difference that each of the pairs would find with 80 % probability, ignoring the choice of learning rates; None
    if a pair's noise is unknown."""
    gaps = [pair.difference(noise) for pair in _pairs(arms, pairs, noise)]
    seen = [detectable(gap.error, gap.freedom, ALPHA / len(pairs)) for gap in gaps if gap is not None]
    return max(seen) if len(seen) == len(pairs) and all(map(math.isfinite, seen)) else None


def _pairs(arms: Sequence[ArmLosses], pairs: Sequence[tuple[str, str]], noise: StudyNoise) -> list[Pair]:
    by_name = {arm.name: arm for arm in arms}
    found = []
    for own, other in pairs:
        arm, base = by_name[own], by_name[other]
        shared = shared_seeds(arm, base)
        found.append(Pair(arm, base, noise.scatter if shared else noise.apart, shared))
    return found


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
    found: ArmContrast, pair: Pair, noise: StudyNoise, tie: float, margin: float | None, sign: int
) -> ArmContrast:
    if not pair.arm.finished and pair.arm.judging:
        return replace(found, verdict="diverged", reason=f"no run of {found.arm} has a finite loss")
    if found.p is None or found.difference is None:
        return replace(found, reason=_why_untested(pair))
    failures = FailureRates(pair.arm.reliability, pair.base.reliability)
    verdict = verdict_of(found.difference, found.p, tie, failures)
    return replace(found, verdict=verdict, reason="; ".join(_reasons(found, verdict, pair, noise, margin, sign)))


def _why_untested(pair: Pair) -> str:
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
    found: ArmContrast, verdict: Verdict, pair: Pair, noise: StudyNoise, margin: float | None, sign: int
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
