"""Alternating timing of models: they take turns within one process, round after round.

A temporary slowdown of the machine affects neighbouring turns alike, so ratios are taken per round. The order of each
round is random: no model always follows the same other model, or the longest pause. The share of each turn in which
other programs had the processor is recorded.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from random import Random
from typing import Any, NamedTuple

from evals.costs.clock import waiting
from evals.costs.point import Phase, Point
from evals.costs.spec import MeasureSpec
from evals.reading.passes import evaluating
from store.documents import CostPoint, Part
from store.documents.measure import CROWDED, Work
from zoo.model import Decoder

SETTLING_SECONDS = 0.01
"""A turn's first repeat does not count if it is shorter, since caches still hold another model's data."""
TURN_SECONDS = 0.015
"""Minimum time of a turn's counted repeats."""
PATIENCE = 3.0
"""On a crowded machine, rounds are added up to this multiple of the planned rounds and time."""

DECODED = 4
"""Tokens per row that a repeat of decoding generates."""
PHASES: tuple[Phase, ...] = ("prefill", "decode")
TakeTurn = Callable[[], float]
"""Function that runs a turn and returns seconds per token."""


class Pace(Part):
    """Minimum seconds for each model, and minimum number of rounds without a crowded turn."""

    seconds: float
    rounds: int


class Effort(Part):
    """Effort of one process. judged: for the points that decide whether an arm is faster, training and decoding at the
    longest context and the smallest batch. drawn: for the other points."""

    judged: Pace
    drawn: Pace


class Rounds(NamedTuple):
    """Seconds per token by model and round, and the share of each turn in which the thread waited for a processor."""

    seconds: dict[str, tuple[float, ...]]
    waited: dict[str, tuple[float | None, ...]]


def alternate(turns: Mapping[str, TakeTurn], pace: Pace, order: Random) -> Rounds:
    """Run rounds of turns until the pace is met; crowded rounds are made up for, within `PATIENCE`."""
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
    """Turn that returns the median seconds per token of its repeats. repeats: seconds of repeats of `tokens` tokens."""

    def turn() -> float:
        taken = [next(repeats)]
        if taken[0] < SETTLING_SECONDS:
            taken.clear()
        while sum(taken) < TURN_SECONDS:
            taken.append(next(repeats))
        return statistics.median(taken) / tokens

    return turn


def serving(models: Mapping[str, Decoder], spec: MeasureSpec, effort: Effort, order: Random) -> Iterator[CostPoint]:
    """Time prefill and decoding at every context × batch."""
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
