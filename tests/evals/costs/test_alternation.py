"""Turns alternate in random order, as long as asked, and no longer on a crowded machine."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

import zoo
from evals.costs import alternation
from evals.costs.alternation import PATIENCE, Effort, Pace, alternate, serving, turn_of
from evals.costs.clock import Waiting
from evals.costs.spec import MeasureSpec

QUICK = Pace(seconds=0.0, rounds=2)


@contextmanager
def waits(share: float | None) -> Iterator[Waiting]:
    yield Waiting(share)


def crowd(monkeypatch: pytest.MonkeyPatch, share: Callable[[], float | None]) -> None:
    monkeypatch.setattr(alternation, "waiting", lambda: waits(share()))


def test_every_round_has_every_model_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, lambda: 0.0)
    seen: list[str] = []

    def turn(name: str) -> Callable[[], float]:
        def taken() -> float:
            seen.append(name)
            return len(seen)

        return taken

    found = alternate({name: turn(name) for name in "abc"}, Pace(seconds=0.0, rounds=200), Random(0))
    rounds = (
        list(itertools.batched(seen, 3)) if hasattr(itertools, "batched") else [*zip(*[iter(seen)] * 3, strict=True)]
    )
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(Counter(rounds)) == 6, "every order"
    assert found.seconds["b"] == tuple(3 * place + each.index("b") + 1 for place, each in enumerate(rounds))
    assert {len(each) for each in (*found.seconds.values(), *found.waited.values())} == {200}


@pytest.mark.parametrize(("share", "rounds"), [(None, 4), (0.04, 4), (0.2, 12)])
def test_rounds_are_added_where_other_programs_had_the_processor_but_not_without_end(
    share: float | None, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(monkeypatch, lambda: share)
    found = alternate({"a": lambda: 1.0, "b": lambda: 2.0}, Pace(seconds=0.0, rounds=4), Random(0))
    assert found.seconds == {"a": (1.0,) * rounds, "b": (2.0,) * rounds}
    assert found.waited["a"] == (share,) * rounds
    assert rounds <= PATIENCE * 4


def test_a_round_with_one_crowded_turn_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = itertools.chain([0.5], itertools.repeat(0.0))
    crowd(monkeypatch, lambda: next(shares))
    found = alternate({"a": lambda: 1.0, "b": lambda: 2.0}, Pace(seconds=0.0, rounds=4), Random(0))
    assert len(found.seconds["a"]) == 5


def test_a_pace_in_seconds_is_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, lambda: 0.0)

    def turn() -> float:
        time.sleep(0.01)
        return 1.0

    found = alternate(dict.fromkeys("ab", turn), Pace(seconds=0.1, rounds=1), Random(0))
    assert 5 <= len(found.seconds["a"]) <= 11


def test_nothing_to_measure_is_no_round() -> None:
    assert alternate({}, QUICK, Random(0)).seconds == {}


def test_short_repeats_settle_and_a_turn_is_their_median_per_token() -> None:
    """Repeats of 2 ms settle: the first does not count, and eight more are 16 ms."""
    repeats = iter([0.009, 0.002, 0.002, 0.002, 0.002, 0.003, 0.003, 0.003, 1.0])
    assert turn_of(repeats, tokens=4)() == pytest.approx(0.002 / 4)
    assert next(repeats) == 1.0
    assert turn_of(iter([0.5, 1.0]), tokens=5)() == pytest.approx(0.1), "a long one counts at once"


def test_serving_measures_every_point_of_every_model() -> None:
    models = {
        "small": zoo.build(zoo.load("small", d_model=16, n_layers=1, vocab_size=32)),
        "large": zoo.build(zoo.load("small", d_model=256, n_layers=2, vocab_size=32)),
    }
    spec = MeasureSpec(contexts=(8, 32), batches=(1, 2))
    points = list(serving(models, spec, Effort(judged=QUICK, drawn=QUICK), Random(0)))
    places = [(point.work, point.context, point.batch) for point in points]
    assert places == [*itertools.chain(*((("prefill", c, b), ("decoding", c, b)) for c in (8, 32) for b in (1, 2)))]
    for point in points:
        assert point.reasons == {}
        small, large = (min(point.seconds[name]) for name in ("small", "large"))
        assert small < large, "sixteen times the width"


def test_a_point_that_a_model_cannot_have_has_a_reason() -> None:
    encoder = {"encoder": zoo.build(zoo.load("small", d_model=16, n_layers=1, vocab_size=32, visible="all"))}
    spec = MeasureSpec(contexts=(8,), batches=(1,))
    prefill, decoding = serving(encoder, spec, Effort(judged=QUICK, drawn=QUICK), Random(0))
    assert len(prefill.seconds["encoder"]) >= 2
    assert (decoding.seconds, decoding.reasons) == ({}, {"encoder": "an encoder has no KV cache"})
