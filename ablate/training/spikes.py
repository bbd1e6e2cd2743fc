"""Loss spikes."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

WINDOW = 32
"""Number of preceding losses with which a loss is compared."""
DEVIATIONS = 7.0
NORMAL = 1.482602218505602
"""σ / MAD of a normal distribution: 1 / Φ⁻¹(¾)."""
AT_ONCE = 2**16
"""Windows processed at a time, to bound memory."""


def loss_spikes(losses: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The steps, counted from 0, whose training loss was more than 7 standard deviations above its running level;
    None for a run of no more steps than the window.

    x_s > m + 7σ, with m the median and σ = 1.4826 · MAD of the 32 losses before step s. Seven deviations from a running
    level are OLMo 2's spike score (arXiv:2501.00656, with the mean and the deviation of 1,000 steps); median and
    MAD in their place are the Hampel identifier (Davies & Gather 1993, JASA 88:782), in which
    spikes do not mask one another. A falling loss widens the window's deviations, so the steep start of a run hides
    small spikes but causes no false ones.
    """
    later = losses[WINDOW:]
    if not len(later):
        return None
    windows = sliding_window_view(losses, WINDOW)[:-1]
    pieces = range(0, len(later), AT_ONCE)
    above = [_above(later[i : i + AT_ONCE], windows[i : i + AT_ONCE]) for i in pieces]
    return WINDOW + np.flatnonzero(np.concatenate(above))


def _above(losses: NDArray[np.float64], windows: NDArray[np.float64]) -> NDArray[np.bool_]:
    level = np.median(windows, axis=1)
    deviation = NORMAL * np.median(np.abs(windows - level[:, None]), axis=1)
    above: NDArray[np.bool_] = losses > level + DEVIATIONS * deviation
    return above
