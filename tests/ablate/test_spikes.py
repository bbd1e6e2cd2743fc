"""Loss spikes against a loop."""

from __future__ import annotations

import numpy as np

from ablate.training.divergence import DEVIATIONS, WINDOW, loss_spikes


def slow_spikes(losses: list[float]) -> list[int]:
    steps = []
    for step in range(WINDOW, len(losses)):
        window = losses[step - WINDOW : step]
        level = np.median(window)
        deviation = 1.482602218505602 * np.median([abs(x - level) for x in window])
        if losses[step] > level + DEVIATIONS * deviation:
            steps.append(step)
    return steps


def test_spikes_are_losses_far_above_their_running_median(monkeypatch):
    noise = np.random.default_rng(0).normal(0, 0.05, 400)
    losses = 5 * np.exp(-np.arange(400) / 100) + 2 + noise
    assert list(loss_spikes(losses)) == slow_spikes(list(losses)) == []
    losses[[150, 300, 301]] += 1.5
    losses[200] -= 1.5  # a loss far below is no spike
    assert list(loss_spikes(losses)) == slow_spikes(list(losses)) == [150, 300, 301]
    monkeypatch.setattr("ablate.training.divergence.AT_ONCE", 7)
    assert list(loss_spikes(losses)) == [150, 300, 301]


def test_a_run_too_short_to_have_a_running_level_has_no_number_of_spikes():
    assert loss_spikes(np.ones(WINDOW)) is None
    assert list(loss_spikes(np.ones(WINDOW + 1))) == []
