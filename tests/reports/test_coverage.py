"""Every kind of interval that a report prints contains the truth in 95 % of studies, or more where it is for several.

Simulated elsewhere: variance components (`statistics/test_crossed`), differences with failures
(`statistics/test_stalled`), effects of designs (`wings/designs/test_screening`), ties
(`statistics/test_simultaneous`, `test_verdicts`), what tuning adds (`test_tuned`), differences of whole studies
(`tests/ablate/test_no_effect`). Losses by position have standard errors and ranges, no intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from reports.judge.findings.verdicts import compare, document_error
from reports.judge.noise.difference import Difference
from reports.judge.noise.power import detectable
from reports.judge.scores import _over_items
from reports.judge.statistics.crossed import crossed
from reports.judge.statistics.estimates import Estimate, detectable_effect, estimate, judge, score_half_width
from store.documents import StudyContrast
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_by_document import frame_of
from tests.reports.test_verdicts import finished

STUDIES = 2000
Kind = Callable[[np.random.Generator], bool]
"""Whether the interval of one simulated study contains the truth."""


def contains(found: Estimate | None, truth: float) -> bool:
    assert found is not None
    return not found.excludes(truth)


def mean_over_seeds(draw: np.random.Generator) -> bool:
    """Losses, bits per byte, accuracies, speeds, memory: all of `ARM_MEASURES`."""
    return contains(estimate(draw.normal(2.3, 0.01, 3).tolist()), 2.3)


def ratio_of_speeds(draw: np.random.Generator) -> bool:
    return contains(judge({"speed": draw.normal(math.log(0.97), 0.02, 3).tolist()})["speed"], 0.97)


def recall_difference(draw: np.random.Generator) -> bool:
    """Whether the interval over pairs of seeds, which a gap of a ladder has too, contains the true difference."""
    return contains(estimate(draw.normal(0.1, 0.03, 5).tolist()), 0.1)


def smallest_difference(draw: np.random.Generator) -> bool:
    """From a standard error with four degrees of freedom."""
    found = detectable_effect(0.01 * math.sqrt(draw.chisquare(4) / 4), 4, 0.025)
    return not found.excludes(detectable(0.01, 4, 0.025))


def score(draw: np.random.Generator, seeds: int, noise: float) -> bool:
    """An accuracy on 200 questions of a benchmark's many, with the error over items that an evaluation reports."""
    easy, shift = draw.uniform(0.3, 0.9, 200), draw.normal(0, noise, (seeds, 1))
    answers = (draw.random((seeds, 200)) < np.clip(easy + shift, 0, 1)).astype(float)
    values = answers.mean(axis=1)
    half = score_half_width((answers.std(axis=1, ddof=1) / math.sqrt(200)).tolist(), values.tolist())
    assert half is not None
    return abs(values.mean() - 0.6) <= half


def score_of_quiet_seeds(draw: np.random.Generator) -> bool:
    return score(draw, 3, 0.0)


def score_of_loud_seeds(draw: np.random.Generator) -> bool:
    return score(draw, 3, 0.1)


def score_of_one_seed(draw: np.random.Generator) -> bool:
    return score(draw, 1, 0.0)


def item_differences(draw: np.random.Generator, seeds: int, of_seeds: float, of_items: float) -> bool:
    """Right or wrong on 100 questions; `of_seeds` and `of_items` are how far each moves the difference."""
    easy = draw.uniform(0.3, 0.7, 100)
    gap = 0.05 + draw.normal(0, of_seeds, (seeds, 1)) + draw.normal(0, of_items, 100)
    right = (draw.random((seeds, 100)) < np.clip(easy + gap, 0, 1)).astype(float)
    base = (draw.random((seeds, 100)) < easy).astype(float)
    return not crossed(right - base).interval().excludes(0.05)


def items_of_three_seeds(draw: np.random.Generator) -> bool:
    return item_differences(draw, 3, 0.03, 0.05)


def items_of_alike_seeds(draw: np.random.Generator) -> bool:
    return item_differences(draw, 3, 0.0, 0.0)


def items_of_many_seeds(draw: np.random.Generator) -> bool:
    return item_differences(draw, 8, 0.03, 0.15)


def items_of_one_seed(draw: np.random.Generator) -> bool:
    """Whether the interval over items alone contains the true mean of skewed differences of log-likelihoods."""
    low, high = _over_items(draw.gumbel(0.0, 1.0, 100) - np.euler_gamma, np.ones(100))
    return low <= 0.0 <= high


def seeds_and_documents(draw: np.random.Generator) -> bool:
    """Losses of 60 documents of unlike lengths, weighted by their tokens."""
    tokens = draw.integers(50, 400, 60)
    cells = 0.02 + draw.normal(0, 0.01, (3, 1)) + draw.normal(0, 0.04, 60) + draw.normal(0, 0.05, (3, 60))
    by_seed = (cells * tokens).sum(axis=1) / tokens.sum()
    frame = frame_of({"arm": cells, "base": np.zeros_like(cells)}, tokens)
    shared = document_error(frame, ("arm", "base"), range(3), by_seed.tolist())
    low, high = Difference(float(by_seed.mean()), float(stats.sem(by_seed)), 2, shared).interval(0.05)
    return low <= 0.02 <= high


SHIFTS = (0.1, 0.01, 0.0)
"""True shifts of three arms: one is plainly different, one perhaps."""


def compared(draw: np.random.Generator, shifts: tuple[float, ...]) -> list[Estimate]:
    """The differences of arms from a baseline, then of the last one from the first."""
    names = [f"arm{i}" for i in range(len(shifts) + 1)]
    losses = draw.normal(2.3, 0.01, (len(names), 4)) + draw.normal(0, 0.02, 4) + np.array([0.0, *shifts])[:, None]
    contrasts = (StudyContrast(arm=names[-1], other=names[1]),) if len(names) > 2 else ()
    study = StudyOf([Arm(name, [2.3] * 4) for name in names]).document().model_copy(update={"contrasts": contrasts})
    rows = [{"arm": n, "seed": s, "loss": float(losses[i, s])} for i, n in enumerate(names) for s in range(4)]
    return [each.difference for each in compare(study, finished(rows)).values() if each.difference is not None]


def difference_of_one_arm(draw: np.random.Generator) -> bool:
    """The first judgement of a question spends 4 of 5 %."""
    return contains(compared(draw, (0.03,))[0], 0.03)


def difference_of_one_of_three_arms(draw: np.random.Generator) -> bool:
    """Corrected for four comparisons, and cut at zero where Holm lets a verdict."""
    arm = int(draw.integers(3))
    return contains(compared(draw, SHIFTS)[arm], SHIFTS[arm])


def declared_contrast(draw: np.random.Generator) -> bool:
    return contains(compared(draw, SHIFTS)[3], SHIFTS[2] - SHIFTS[0])


def all_differences_of_a_study(draw: np.random.Generator) -> bool:
    truths = (*SHIFTS, SHIFTS[2] - SHIFTS[0])
    return all(contains(found, truth) for found, truth in zip(compared(draw, SHIFTS), truths, strict=True))


EXACT = (0.93, 0.97)
AT_LEAST = (0.94, 1.0)
"""Conservative by design: it covers several sources of noise, each with its own quantile, or all arms at once."""
KINDS: list[tuple[Kind, tuple[float, float]]] = [
    (mean_over_seeds, EXACT),
    (ratio_of_speeds, EXACT),
    (recall_difference, EXACT),
    (smallest_difference, EXACT),
    (score_of_quiet_seeds, AT_LEAST),
    (score_of_loud_seeds, AT_LEAST),
    (score_of_one_seed, EXACT),
    (items_of_three_seeds, AT_LEAST),
    (items_of_alike_seeds, AT_LEAST),
    (items_of_many_seeds, EXACT),
    (items_of_one_seed, EXACT),
    (seeds_and_documents, AT_LEAST),
    (difference_of_one_arm, EXACT),
    (difference_of_one_of_three_arms, AT_LEAST),
    (declared_contrast, AT_LEAST),
    (all_differences_of_a_study, (0.93, 1.0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "bounds"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_a_printed_interval_contains_the_truth(kind: Kind, bounds: tuple[float, float]) -> None:
    draw = np.random.default_rng(14)
    share = sum(kind(draw) for _ in range(STUDIES)) / STUDIES
    print(f"{kind.__name__}: {share:.4f} of {STUDIES}")
    assert bounds[0] <= share <= bounds[1]
