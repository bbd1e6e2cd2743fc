"""Criteria of divergence, which gives a run a result with a reason, not a crash."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ablate.training.loop import TrainingStep


@dataclass
class DivergenceWatch:
    """Watch on training losses. Diverged means: the loss or the gradient norm is not finite, or, after warm-up, the
    loss stays above the start for `window` steps, so that a bad batch or a transient spike does not end a run.
    """

    warmup: int
    start_loss: float | None = None
    above: int = 0
    window: int = 20

    def reason(self, step: TrainingStep) -> str | None:
        """Why the run has diverged at this step; None if it has not. To be called with every step in order."""
        if not math.isfinite(step.loss):
            return f"the loss was {step.loss} at step {step.step}"
        if not math.isfinite(step.grad_norm):
            return f"the gradient norm was {step.grad_norm} at step {step.step}"
        if self.start_loss is None:
            self.start_loss = step.loss
        counts = step.step > self.warmup and step.loss > self.start_loss
        self.above = self.above + 1 if counts else 0
        if self.above >= self.window:
            return (
                f"the loss stayed above its start ({self.start_loss:.3f}) for {self.window} steps"
                f" until step {step.step}, when it was {step.loss:.3f}"
            )
        return None


NEAR_UNIFORM = 0.1
"""Margin in nats: every model starts this near to ln V (see `zoo.init`), so an end this near is no divergence."""


def final_reason(start: float, end: float, uniform: float) -> str | None:
    """Why a run that reached its last step has diverged nevertheless, from its validation losses; None if it has not.

    uniform: ln V, the loss of a uniform guess. A model that starts above it has learnt nothing if it ends there, too.
    """
    if not math.isfinite(end):
        return f"the validation loss after the last step was {end}"
    if end > start:
        return f"the validation loss after the last step ({end:.3f}) was above that before the first ({start:.3f})"
    if end > uniform + NEAR_UNIFORM:
        return f"the validation loss after the last step ({end:.3f}) was above that of a uniform guess ({uniform:.3f})"
    return None


# Loss spikes.

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
    above = []
    for i in range(0, len(later), AT_ONCE):
        before = windows[i : i + AT_ONCE]
        level = np.median(before, axis=1)
        deviation = NORMAL * np.median(np.abs(before - level[:, None]), axis=1)
        above.append(later[i : i + AT_ONCE] > level + DEVIATIONS * deviation)
    return WINDOW + np.flatnonzero(np.concatenate(above))
