"""Words for how arms got their learning rates, before and after tuning."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.store.documents.tuning import StudyRates

SHARES = {1.0: "full length", 0.5: "half the length", 0.25: "a quarter of the length"}


def untuned(rates: StudyRates) -> str:
    """`learning rates tuned earlier, see studies/LOG.md`, or `learning rates not tuned`."""
    if rates.how == "carried":
        return "learning rates tuned earlier" + (f", see {rates.where}" if rates.where else "")
    return "learning rates not tuned"


def trials(counts: Sequence[int], noun: str, seeds: int, fraction: float) -> str:
    """`5 to 7 rates × 1 seed at a quarter of the length`. counts: the trials of each arm."""
    count = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"{count} {noun} × {seeds} seed{'' if seeds == 1 else 's'} at {share(fraction)}"


def share(fraction: float) -> str:
    """`a quarter of the length`."""
    return SHARES.get(fraction, f"{100 * fraction:g} % of the length")
