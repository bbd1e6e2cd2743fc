"""Models timed against each other: they take turns within one process, round after round.

Whatever slows the machine for a while slows neighbouring turns alike, so a ratio is taken round by round. The order of
each round is drawn at random: no model always follows the same other one, or the longest pause. It is noted for how
long other programs had the processor in each turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from random import Random
from typing import Any, NamedTuple

from ablate.store.documents import CostPoint, Part
from ablate.store.documents.costs import CROWDED, Work
from evals.costs.contention import waiting
from evals.costs.point import Phase, Point
from evals.costs.spec import MeasureSpec
from evals.reading.mode import evaluating
from zoo.model import Decoder

SETTLING_SECONDS = 0.01
"""A repeat that is shorter is not the first of a turn that counts: caches still hold another model's numbers."""
TURN_SECONDS = 0.015
"""Time from which on a turn is long enough."""
PATIENCE = 3.0
"""On a crowded machine, rounds are added until so many times the planned time is spent."""

DECODED = 4
"""Tokens that a repeat of decoding writes."""
PHASES: tuple[Phase, ...] = ("prefill", "decode")
TakeTurn = Callable[[], float]
"""Works for a moment, and returns seconds per token."""


class Pace(Part):
    """At least so many seconds for each model, and at least so many rounds without a crowded turn."""

    seconds: float
    rounds: int


class Effort(Part):
    """Effort of one process. judged: what arms are called faster or slower by, training and decoding at the longest
    context and the smallest batch. drawn: the other points."""

    judged: Pace
    drawn: Pace


class Rounds(NamedTuple):
    """Seconds per token by model and round, and the share of the turn in which it waited for a processor."""

    seconds: dict[str, tuple[float, ...]]
    waited: dict[str, tuple[float | None, ...]]


def alternate(turns: Mapping[str, TakeTurn], pace: Pace, order: Random) -> Rounds:
    """Rounds of turns: as many as the pace asks for, and more, but not without end, where some are crowded."""
    names = sorted(turns)
    seconds, waited = ({name: list[Any]() for name in names} for _ in range(2))
    began, planned, rounds, quiet = time.perf_counter(), pace.seconds * len(turns), 0, 0
    while names:
        order.shuffle(names)
        for name in names:
            with waiting() as found:
                seconds[name].append(turns[name]())
            waited[name].append(found.share)
        rounds, quiet = rounds + 1, quiet + all((waited[name][-1] or 0.0) < CROWDED for name in names)
        spent = time.perf_counter() - began
        enough = quiet >= pace.rounds and spent >= planned
        if enough or (rounds >= PATIENCE * pace.rounds and spent >= PATIENCE * planned):
            break
    return Rounds(*({name: tuple(each[name]) for name in sorted(each)} for each in (seconds, waited)))


def turn_of(repeats: Iterator[float], tokens: int) -> TakeTurn:
    """The median of repeats that take so many seconds for so many tokens, as many as a turn has time for."""

    def turn() -> float:
        taken = [next(repeats)]
        if taken[0] < SETTLING_SECONDS:
            taken.clear()
        while sum(taken) < TURN_SECONDS:
            taken.append(next(repeats))
        return statistics.median(taken) / tokens

    return turn


def serving(models: Mapping[str, Decoder], spec: MeasureSpec, effort: Effort, order: Random) -> Iterator[CostPoint]:
    """Reading prompts and decoding at every context × batch."""
    for context, batch in product(sorted(spec.contexts), sorted(spec.batches)):
        for phase in PHASES:
            judged = phase == "decode" and (context, batch) == (max(spec.contexts), min(spec.batches))
            yield _served(models, phase, context, batch, effort.judged if judged else effort.drawn, order)


def _served(
    models: Mapping[str, Decoder], phase: Phase, context: int, batch: int, pace: Pace, order: Random
) -> CostPoint:
    turns, reasons = dict[str, TakeTurn](), dict[str, str]()
    for name, model in models.items():
        found = Point(model, context, batch, pace.seconds).repeats(phase, DECODED)
        if isinstance(found, str):
            reasons[name] = found
        else:
            turns[name] = _reading(model, turn_of(*found))
    rounds = alternate(turns, pace, order)
    work: Work = "prefill" if phase == "prefill" else "decoding"
    return CostPoint(work=work, context=context, batch=batch, **rounds._asdict(), reasons=reasons)


def _reading(model: Decoder, turn: TakeTurn) -> TakeTurn:
    def read() -> float:
        with evaluating(model):
            return turn()

    return read
