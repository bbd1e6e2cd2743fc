"""`ablate.size`: the model and the budget with which a question fits a number of minutes on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.api.planning import plan
from ablate.api.study_argument import StudyLike
from ablate.readable import clock
from ablate.running.study_plan import StudyPlan
from ablate.study.complaints import StudyError
from ablate.study.written import Sets
from store.documents import JsonObject
from store.documents.study_arm import STEPS
from store.errors import ArgumentError

SHARES = (0.25, 0.375, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8)
"""Widths that are tried, as shares of the scale's own."""
SEEDS = (None, 3)
"""Seeds that are tried: the scale's own number first."""
TOKENS_PER_PARAMETER = 20
"""About compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556)."""


@dataclass(frozen=True)
class Sized:
    """A plan that fits, or the shortest if none does.

    Attributes:
        plan: the plan with these settings.
        sets: the settings by path.
        seconds: estimated time of all that is missing.
        fits: whether that is within the minutes.
    """

    plan: StudyPlan
    sets: JsonObject
    seconds: float
    fits: bool

    def document(self) -> JsonObject:
        """JSON form, for `ablate plan --minutes N --json`."""
        return {**self.plan.document(), "sized": {"sets": self.sets, "seconds": self.seconds, "fits": self.fits}}

    def lines(self) -> list[str]:
        """The lines to paste into the study, and its time."""
        base = f"base: {{d_model: {self.sets['base.d_model']}}}"
        budget = f"budget: {{tokens_per_parameter: {TOKENS_PER_PARAMETER}}}"
        more = [f"    seeds: {self.sets['seeds']}"] if "seeds" in self.sets else []
        more += [f"    train: {{batch: {self.sets['train.batch']}}}"] if "train.batch" in self.sets else []
        short = "" if self.fits else ", the shortest that was tried: use a longer time, or fewer arms"
        return [
            "scales:",
            f"  {self.plan.study.scale}:",
            f"    {base}",
            f"    {budget}",
            *more,
            f"# about {clock(max(1.0, self.seconds))}{short}",
        ]


def size(
    study: StudyLike,
    minutes: float,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    device: str | None = None,
) -> Sized:
    """Find the largest model whose study fits a time on this machine, at 20 tokens per parameter.

    Tries widths from eight times to a quarter of the scale's, with its seeds and then with three. Nothing is trained.

    Args:
        study, scale, sets, store, device: as in `ablate.plan`.
        minutes: the time for everything: tuning, training, measuring and evaluating.

    Returns:
        The plan that fits, with its settings; the shortest if none does.

    Raises:
        StudyError: the study cannot be read or planned at any of the widths.
        ArgumentError: `minutes` is not above 0.

    Example:
        >>> print("\\n".join(ablate.size("norm_placement", 5).lines()))
    """
    if not minutes > 0:
        raise ArgumentError("minutes", f"expected a number above 0, not {minutes:g}")
    width = plan(study, scale=scale, sets=sets, store=store, device=device).planned[0].spec.d_model
    shortest: Sized | None = None
    problem: StudyError | None = None
    for seeds in SEEDS:
        fitting: Sized | None = None
        for share in SHARES:
            budget: JsonObject = {"tokens_per_parameter": TOKENS_PER_PARAMETER}
            own: JsonObject = {"base.d_model": round(width * share), "budget": budget}
            own |= {} if seeds is None else {"seeds": seeds}
            try:
                found = plan(study, scale=scale, sets=_with(sets, own), store=store, device=device)
                if batch := _batch(found):
                    own["train.batch"] = batch
                    found = plan(study, scale=scale, sets=_with(sets, own), store=store, device=device)
            except StudyError as error:  # a width that the heads do not divide
                problem = error
                continue
            sized = Sized(found, own, found.time.total, found.time.total <= 60 * minutes)
            shortest = sized if shortest is None or sized.seconds < shortest.seconds else shortest
            if not sized.fits:  # nor do wider ones
                break
            fitting = sized
        if fitting is not None:
            return fitting
    if shortest is None:
        raise problem or ArgumentError("minutes", "no width can be planned")
    return shortest


def _batch(found: StudyPlan) -> int | None:
    """The batch with which every arm takes as many steps as a verdict needs; None if they do already."""
    arm = min(found.planned, key=lambda arm: arm.steps)
    return max(1, arm.tokens // (STEPS * arm.train.context)) if arm.steps < STEPS and arm.train.batch > 1 else None


def _with(sets: Sets, own: Mapping[str, object]) -> Sets:
    """Edits from a map or from `PATH=VALUE` texts, and our own after them."""
    if isinstance(sets, Mapping):
        return {**sets, **own}
    return [*sets, *(f"{path}={json.dumps(value)}" for path, value in own.items())]
