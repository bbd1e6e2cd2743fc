"""Judge a table of losses from any source with the same noise model, corrections and verdicts as the pages. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from reports.judge.findings.noise import StudyNoise, tuning_rows
from reports.judge.noise import HISTORY_FREEDOM, Noise
from reports.judge.noise.moderated import NoiseModel
from reports.judge.noise.power import ALPHA, detectable
from reports.judge.statistics.estimates import holm
from reports.judge.statistics.simultaneous import Evidence, together
from reports.judge.verdicts import Verdict, verdict_of
from store.documents import StudyTrial, StudyTuning
from store.documents.tuning import RATE


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
    def failed(self) -> int:
        """Number of failed runs."""
        return len(self.judging) - len(self.finished)


@dataclass(frozen=True)
class ArmContrast:
    """An arm against another: the difference of their mean losses at their best learning rates, and the verdict.

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
    """Number of seeds that finished in both arms."""


def noise_of(arms: Sequence[ArmLosses], sigma: float | None = None) -> StudyNoise:
    """Noise of all runs together. sigma: standard deviation of one run, if it is known from like runs."""
    tunings = [_tuning(arm) for arm in arms if arm.tuning]
    history = None if sigma is None else Noise(sigma, HISTORY_FREEDOM)
    rows = {arm.name: arm.judging for arm in arms}
    return StudyNoise(NoiseModel(rows, tuning_rows(tunings), history), tuple(tunings))


def judge(
    arms: Sequence[ArmLosses],
    pairs: Sequence[tuple[str, str]],
    noise: StudyNoise,
    margin: float | None = None,
    sign: int = 1,
    alpha: float = ALPHA,
) -> list[ArmContrast]:
    """Judge pairs of arms together, corrected by Holm.

    sign: −1 for losses that are negated scores; reasons then use the scores' own sign. alpha: level of this look, if
    the arms are looked at several times; p-values are corrected for the others.
    """
    by_name, looks = {arm.name: arm for arm in arms}, ALPHA / alpha
    compared = [(by_name[arm], by_name[base]) for arm, base in pairs]
    gaps = [noise.difference(arm.name, base.name) for arm, base in compared]
    p_values, intervals = together([Evidence.of(gap, looks) for gap in gaps])
    ties = holm([min(1.0, looks * gap.p_within(margin)) if gap and margin else 1.0 for gap in gaps])
    contrasts = []
    for (arm, base), gap, p, tie, ends in zip(compared, gaps, p_values, ties, intervals, strict=True):
        difference = (
            fmean(arm.finished.values()) - fmean(base.finished.values()) if arm.finished and base.finished else None
        )
        common = len(arm.finished.keys() & base.finished.keys())
        found = ArmContrast(arm.name, base.name, difference, None, None, None, "cannot tell", "", None, common)
        if gap is None:
            dead = not arm.finished and arm.judging
            contrasts.append(
                replace(found, verdict="diverged" if dead else "cannot tell", reason=_why_untested(arm, base, noise))
            )
            continue
        level = alpha / len(pairs)
        seen = detectable(gap.error, gap.freedom, level) + gap.room(level)
        found = replace(found, low=ends.low, high=ends.high, p=p, detectable=seen if math.isfinite(seen) else None)
        found = replace(found, verdict=verdict_of(gap.value, p, tie if margin else None))
        contrasts.append(replace(found, reason="; ".join(_reasons(found, arm, base, noise, margin, sign))))
    return contrasts


def smallest_detectable(pairs: Sequence[tuple[str, str]], noise: StudyNoise, alpha: float = ALPHA) -> float | None:
    """Difference that each of the pairs would find with 80 % probability, ignoring the choice of learning rates; None
    if a pair's noise is unknown."""
    gaps = [gap for pair in pairs if (gap := noise.difference(*pair))]
    seen = [detectable(gap.error, gap.freedom, alpha / len(pairs)) for gap in gaps]
    return max(seen) if len(seen) == len(pairs) and all(map(math.isfinite, seen)) else None


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


def _why_untested(arm: ArmLosses, base: ArmLosses, noise: StudyNoise) -> str:
    dead = [each.name for each in (arm, base) if not each.finished]
    if dead:
        return f"no run of {dead[0]} has a finite loss"
    few = [each.name for each in (arm, base) if len(each.finished) < 2]
    if few:
        why = "seed noise is unknown" if noise.model.history is None else "a known sigma only adds to what seeds show"
        return f"fewer than two finished seeds in {' and '.join(few)}: {why}"
    if arm.finished == base.finished:
        return "both arms have the same loss at every seed: they compute the same"
    return "all seeds of an arm have the same loss: seed noise is unknown"


def _reasons(
    found: ArmContrast, arm: ArmLosses, base: ArmLosses, noise: StudyNoise, margin: float | None, sign: int
) -> list[str]:
    """Reasons for a verdict, or against one."""
    own, others = arm.judging.keys(), base.judging.keys()
    said = [f"{found.paired} paired seeds"]
    if own != others:
        said = [f"{len(own)} and {len(others)} seeds, {len(own & others) or 'none'} in common"]
    if found.verdict == "no difference":
        said.append(f"smaller than the margin of {margin:g}")
    for each in (arm, base):
        if odd := noise.odd.get(each.name):
            side = replace(odd, above=sign * odd.above).side
            rest = {seed: loss for seed, loss in each.finished.items() if seed != odd.seed}
            without = {arm.name: arm.finished, base.name: base.finished} | {each.name: rest}
            value = sign * (fmean(without[arm.name].values()) - fmean(without[base.name].values()))
            said.append(
                f"seed {odd.seed} of {each.name} ended {abs(odd.above):.2g} {side} the others: without it the "
                f"difference is {value:+.2g}"
            )
        if each.failed:
            side = "better" if each is arm else "worse"
            forbids = f", so {arm.name} cannot be {side}" if found.verdict == "inconclusive" else ""
            said.append(f"{each.failed} of {len(each.judging)} runs of {each.name} failed{forbids}")
        if each.tuning and not noise.penalty(each.name).is_bounded:
            said.append(f"the best learning rate of {each.name} is at the edge of those tried")
    if found.verdict == "inconclusive" and found.detectable is not None:
        said.append(f"could detect {found.detectable:.2g} with 80 % power")
    return said


HIGHER_IS_BETTER = re.compile(
    "acc(uracy)?|auc|au(pr|ro)c|bleu|chrf|correct|elo|em|exact|f1|iou|kappa|map|mcc|meteor|mrr|ndcg|pass|pearson|"
    "precision|psnr|r2|recall|returns?|rewards?|rouge(1|2|l|lsum)?|scores?|spearman|ssim|success|top[15]|win(s|rate)?"
)
"""Words in the names of metrics for which higher is better."""
LOWER_IS_BETTER = re.compile(
    "bits|bp[bt]|brier|[ctw]er|cost|entropy|errors?|loss(es)?|mae|r?mse|negative|nll|perplexity|ppl|regret|time"
)
"""Words that override those above: `score_error`, `negative_reward`."""


def seems_higher_is_better(metric: str) -> bool:
    """Whether a metric's name suggests that higher is better: `eval/acc_norm,none`, `winRate`, `Exact match`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", metric)
    words = re.findall(r"[a-z]+\d*", spaced.casefold())
    return any(map(HIGHER_IS_BETTER.fullmatch, words)) and not any(map(LOWER_IS_BETTER.fullmatch, words))


def notes_on(metric: str, higher_is_better: bool) -> list[str]:
    """A note on the direction in which the metric is judged, if a reader may expect the other."""
    if higher_is_better:
        return [f"higher `{metric}` counts as better"]
    if seems_higher_is_better(metric):
        remedy = "if higher is better, use --higher-is-better (in Python higher_is_better=True)"
        return [f"lower `{metric}` counts as better, as for a loss: {remedy}"]
    return []


def facing(contrast: ArmContrast) -> ArmContrast:
    """A contrast of negated values, converted back to the given values; the verdict stays."""
    low, high, difference = (
        None if value is None else -value for value in (contrast.high, contrast.low, contrast.difference)
    )
    return replace(contrast, difference=difference, low=low, high=high)
