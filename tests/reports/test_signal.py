"""Signal to noise of a score, against its definition."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from reports.judge.findings.study_summary import MeanScore, signal_to_noise


def _arms(*scores: tuple[float | None, float | None]) -> Any:
    shared = {"half_width": None, "higher_is_better": True, "chance": None, "seeds": 1}
    return [
        SimpleNamespace(scores=(MeanScore(task="t", metric="acc", value=value, stderr=error, **shared),))
        for value, error in scores
    ]


def test_the_range_of_the_arms_over_their_errors() -> None:
    found = signal_to_noise(_arms((0.5, 0.03), (0.62, 0.04), (0.55, 0.05)), "t", "acc")
    assert found == pytest.approx(0.12 / math.sqrt((0.03**2 + 0.04**2 + 0.05**2) / 3))


@pytest.mark.parametrize("scores", [[(0.5, 0.1)], [(0.5, 0.1), (None, None)], [(0.5, 0.0), (0.6, 0.0)]])
def test_none_where_there_is_nothing_to_compare(scores: list[tuple[float | None, float | None]]) -> None:
    assert signal_to_noise(_arms(*scores), "t", "acc") is None
    assert signal_to_noise(_arms((0.5, 0.1), (0.6, 0.1)), "t", "f1") is None
