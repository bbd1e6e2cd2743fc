"""Tuning in a study's `study.json`: the settings tried, and those chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeGuard

from pydantic import Field, JsonValue

from store.documents._document import Document, JsonObject, NatsPerToken, Part, Unit, is_none

RATE = "train.lr"
"""Path of the learning rate."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a tuned setting's value is a number; booleans, which are integers in Python, are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class StudyTrial(Part):
    """Settings that tuning tried."""

    settings: JsonObject
    """Settings by path."""
    losses: tuple[NatsPerToken | None, ...]
    """Loss of every tuning seed; null if it diverged."""
    runs: tuple[str, ...]
    """Digests of its runs."""
    stalled: int = 0
    """Number of its seeds that ended near the unigram loss."""

    @property
    def loss(self) -> float | None:
        """Mean over the tuning seeds; None if one diverged."""
        known = [loss for loss in self.losses if loss is not None]
        return sum(known) / len(known) if len(known) == len(self.losses) else None

    @property
    def trains(self) -> bool:
        """Whether a seed neither diverged nor stalled."""
        return self.stalled < len(self.losses) and any(loss is not None for loss in self.losses)


class StudyPass(Part):
    """Tuning runs of one length."""

    fraction: Annotated[float, Unit("share")]
    """Share of the budget that each trial had."""
    trials: tuple[StudyTrial, ...]
    """All trials of this length."""

    @property
    def trains(self) -> bool:
        """Whether a seed of any trial neither diverged nor stalled."""
        return any(trial.trains for trial in self.trials)

    @property
    def reliable(self) -> tuple[StudyTrial, ...]:
        """Trials without a failed seed, from which the best is chosen. A stalled seed counts as failed if some trial
        has none."""
        known = tuple(trial for trial in self.trials if trial.loss is not None)
        return tuple(trial for trial in known if not trial.stalled) or known


class SearchStart(Part):
    """Learning rates at which an arm's search began at full length, because a like arm's best rate was known."""

    rates: tuple[float, ...]
    """The rates tried first."""
    arm: str
    """The arm whose best rate was known: this one or a like one, else the baseline."""
    source: str
    """Where it was tuned: `norm_placement@cpu in this store`."""


class StartsDocument(Document):
    """`studies/<name>-<scale>/starts.json`: where the searches for learning rates began, so that an interrupted one
    continues as it began, whatever the store has learned since."""

    searches: dict[str, dict[str, SearchStart]]
    """Starts by arm, for each set of arms that was searched, by the digest of the arms' identities. Empty for a set
    that began at grids."""


class TuningDocument(Document):
    """`studies/<name>-<scale>/tuning.json`: the round in which a study's arms are tuned, until they are planned."""

    name: str
    """The study's name."""
    scale: str
    """Its scale."""
    question: str = ""
    """Its question; empty in documents of before December 2026."""
    stage: str
    """`tuning, round 2`."""
    runs: dict[str, str]
    """The round's runs by digest: arm with the settings tried, `post with lr=0.012`."""


class StudyTuning(StudyPass):
    """Tuning of one arm: the deciding pass, and its choice."""

    arm: str
    """The arm's name."""
    chosen: JsonObject
    """The chosen settings, by path."""
    edges: tuple[str, ...]
    """Settings whose best value lies at the edge of the values tried, or beyond it if no seed trained."""
    curve: tuple[float, ...]
    """Learning rates whose mean losses a polynomial interpolates; the chosen rate is its minimum. Empty if the settings
    of lowest mean loss were chosen."""
    reason: str | None
    """Why there is no such curve, if the learning rate was tuned alone."""
    coarse: tuple[StudyPass, ...]
    """Shorter runs that narrowed the values tried, if any."""
    start: SearchStart | None = Field(default=None, exclude_if=is_none)
    """Where the search began, if at known rates instead of a grid."""

    @property
    def rate(self) -> float:
        """The chosen learning rate. Raises KeyError if only other settings were tuned."""
        return _number(self.chosen[RATE])

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate of every trial."""
        return tuple(_number(trial.settings[RATE]) for trial in self.trials)


def _number(value: JsonValue) -> float:
    if isinstance(value, int | float):
        return value
    raise ValueError(f"not a number: {value}")


class StudyRates(Part):
    """Origin of the arms' learning rates."""

    how: Literal["tuned", "carried", "written"]
    """`tuned`: for each arm in this study; `carried`: tuned earlier, set in the file; `written`: set there untuned."""
    where: str | None
    """Location of the tuning curves of carried rates."""


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
