"""A study of 1,000 runs with 2,000 logged steps each, and what thinning its curves keeps."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reports
from reports.losses import keep_extremes
from tests.reports.factory import Arm, StudyOf

ARMS, SEEDS, STEPS = 100, 10, 2000


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=300), st.integers(2, 40))
def test_thinning_keeps_the_ends_and_every_peak(values: list[float], points: int) -> None:
    array = np.array(values)
    kept = keep_extremes(array, points)
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= points + 2
    assert {0, len(values) - 1} <= set(kept.tolist())
    assert array[kept].max() == max(values)
    assert array[kept].min() == min(values)
    bins = max(1, points // 2)
    if len(values) > points:
        for part in range(bins):  # each bin on its own, by a loop
            start, end = part * len(values) // bins, (part + 1) * len(values) // bins
            assert {min(values[start:end]), max(values[start:end])} <= {values[i] for i in kept if start <= i < end}


@pytest.mark.slow
def test_a_thousand_runs_are_rendered_in_time_to_a_page_that_can_be_sent(tmp_path: Path) -> None:
    """In processor time, which other work on the machine does not lengthen."""
    scatter = np.random.default_rng(0).normal(0, 0.01, (ARMS, SEEDS))
    arms = [
        Arm(f"arm {i:03d}", (2.3 + 0.001 * i + scatter[i]).tolist(), speed=4000 + 10 * i, steps=STEPS)
        for i in range(ARMS)
    ]
    folder = StudyOf(arms, measured=False).write(tmp_path)
    began = time.process_time()
    path = reports.render(folder)
    assert time.process_time() - began < 10
    assert path.stat().st_size < 15e6
