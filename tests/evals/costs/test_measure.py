"""Speed and cache measurements: what is declared, what is allocated, and what the numbers are made of."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import numpy as np
import pytest
import torch

import evals.costs.point
import zoo
from evals.costs.clock import Clock
from evals.costs.point import Point, Turn
from evals.costs.spec import MeasureSpec
from evals.costs.speed import measure
from tests.documents import plain_of
from zoo.caches.quantised import Int8
from zoo.errors import SpecError
from zoo.model import Decoder

QUICK = MeasureSpec(contexts=(16, 8), batches=(1, 3), seconds=0.001)


def test_every_point_is_measured(model: Decoder) -> None:
    document = plain_of(measure(model, QUICK))
    json.dumps(document, allow_nan=False)
    assert document["schema"] == 1
    assert document["request"] == QUICK.model_dump(mode="json")
    for part in ("cache", "prefill", "decode"):
        points = [(p["context"], p["batch"]) for p in document[part]]
        assert points == list(itertools.product((8, 16), (1, 3)))
    for point in document["prefill"] + document["decode"]:
        rates = point["tokens_per_second"]
        assert 0 < rates["q25"] <= rates["median"] <= rates["q75"]
        assert point["peak_memory_bytes"] > 0
    assert document["bandwidth_bytes_per_second"] > 0
    assert all(point["bandwidth_utilisation"]["median"] > 0 for point in document["decode"])


@pytest.mark.parametrize("window", [None, 8])
def test_cache_bytes_are_keys_and_values_of_every_layer(window: int | None) -> None:
    """2 (keys, values) × L × K × d × 4 bytes, per token that the cache holds."""
    model = zoo.build(zoo.load("small", d_model=32, n_layers=2, **{"block.mixer.window": window}))
    document = plain_of(measure(model, QUICK))
    per_token = 2 * 2 * 4 * 8 * 4
    for point in document["cache"]:
        held = min(point["context"], window or point["context"])
        assert point["declared_bytes"] == point["allocated_bytes"] == point["batch"] * held * per_token
    assert document["kv_context"] == 16
    assert document["kv_bytes_per_token"] == per_token * (min(16, window or 16) / 16)


def repeats_of(*seconds: float) -> Clock:
    """Clock by which repeats take so many seconds, one after another."""
    return itertools.accumulate(step for each in seconds for step in (0.0, each)).__next__


def test_the_first_repeat_warms_up(model: Decoder) -> None:
    point = Point(model, context=10, batch=2, seconds=1e-9, clock=repeats_of(100.0, 1.0, 0.5, 0.25))
    assert point.turn("prefill", 0).seconds == [1.0, 0.5, 0.25]


def test_points_take_turns_and_each_turn_counts(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary slowdown of the machine affects one turn of all points, and not all of one point."""
    order: list[tuple[int, int, int]] = []

    def attempt(self: Point, phase: str, number: int) -> Turn:
        order.append((self.context, self.batch, number))
        return Turn([1.0 + number], self.context, "fused")

    monkeypatch.setattr(Point, "attempt", attempt)
    found = measure(model, QUICK).decode[-1]
    places = list(itertools.product((8, 16), (1, 3)))
    assert order[:12] == [(*place, number) for number in range(3) for place in places]
    assert found.turns == (48.0, 24.0, 16.0)
    assert found.attention == "fused"


def test_decoding_names_its_own_backend(model: Decoder) -> None:
    """Not that of the prompt that it goes on from."""
    windowed = zoo.build(zoo.load("small", d_model=16, n_layers=1, **{"block.mixer.window": 4}))
    with torch.inference_mode():
        point = Point(windowed.eval(), context=10, batch=2, seconds=1e-9)
        assert (point.prefill().attention, point.decode().attention) == ("band", "fused")


def test_numbers_are_quartiles_over_repeats(model: Decoder) -> None:
    """Quartiles match those by hand, for passes of 1, 1/2 and 1/4 s that read 20 tokens, and 16 steps that write 2
    tokens each."""
    seconds = [1.0, 0.5, 0.25]
    clock = repeats_of(*[100.0, *seconds] * 2)
    point = Point(model, context=10, batch=2, seconds=1e-9, clock=clock, bandwidth=1e9)
    prefill, decode = plain_of(point.prefill()), plain_of(point.decode())
    assert prefill["tokens_per_second"] == approx_quartiles([20, 40, 80])
    assert prefill["seconds_to_first_token"] == approx_quartiles(seconds)
    assert decode["tokens_per_second"] == approx_quartiles([32, 64, 128])
    assert decode["seconds_per_output_token"] == approx_quartiles([s / 16 for s in seconds])
    # All parameters but the token table's rows that are not looked up (it is the head too here), and the keys and
    # values of 2 layers × 2 kv heads × 8 features for 18 tokens of 2 rows.
    weights = sum(p.numel() for p in model.parameters())
    read = 4 * (weights + 2 * 2 * 2 * 2 * 8 * 18)
    assert decode["bytes_read_per_step"] == read
    assert decode["bandwidth_utilisation"] == approx_quartiles([read * 16 / s / 1e9 for s in seconds])


def approx_quartiles(values: list[float]) -> Any:
    return pytest.approx(dict(zip(("q25", "median", "q75"), np.percentile(values, (25, 50, 75)), strict=True)))


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_peak_memory_is_that_of_the_phase(phase: str, model: Decoder) -> None:
    def allocating() -> float:
        torch.ones(2**26).sum()
        return time.perf_counter()

    plain, more = (Point(model, context=8, batch=1, seconds=1e-9, clock=clock) for clock in (time.time, allocating))
    before = getattr(plain, phase)().peak_memory_bytes
    assert getattr(more, phase)().peak_memory_bytes - before == pytest.approx(2**28, rel=0.1)


def test_where_positions_end_there_is_no_decoding() -> None:
    edits = {"d_model": 16, "n_layers": 1, "block.mixer.position": {"kind": "learned", "length": 16}}
    spec = MeasureSpec(contexts=(16,), batches=(1,), seconds=0.001)
    document = plain_of(measure(zoo.build(zoo.load("small", **edits)), spec))
    assert document["decode"][0]["reason"] == "reads at most 16 tokens, and decoding generates 16 more"
    assert "tokens_per_second" in document["prefill"][0]


def test_decoding_always_starts_from_the_same_full_cache(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def watch(tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        lengths.append(cache.length)
        return hidden(tokens, cache)

    point = Point(model, context=10, batch=2, seconds=1e-9)
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", watch)
    with torch.inference_mode():
        list(itertools.islice(point.passes.issued_decode_seconds(), 3))
    assert lengths == [0, *[*range(10, 26)] * 3]


def test_a_point_without_room_says_so(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        evals.costs.point, "available_bytes", lambda: 2 * 2 * 2 * 2 * 8 * 4 * 16
    )  # two caches of 16 tokens
    document = plain_of(measure(model, QUICK))
    for part in ("cache", "prefill", "decode"):
        refused = [(p["context"], p["batch"]) for p in document[part] if "reason" in p]
        assert refused == [(8, 3), (16, 3)]
        assert "out of memory" in document[part][-1]["reason"]


def test_a_failed_allocation_is_a_reason_and_other_errors_are_errors(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr(Decoder, "new_cache", fail)
    assert "Tried to allocate" in plain_of(measure(model, QUICK))["decode"][0]["reason"]
    monkeypatch.setattr(Decoder, "new_cache", lambda *_, **__: torch.zeros(2) + torch.zeros(3))
    with pytest.raises(RuntimeError, match="must match"):
        plain_of(measure(model, QUICK))


@pytest.mark.gpu
def test_on_cuda(model: Decoder) -> None:
    spec = MeasureSpec.model_validate(QUICK.model_dump() | {"caches": ["int8"]})
    found = measure(zoo.build(model.spec).cuda(), spec)
    assert all(point.tokens_per_second is not None for point in found.decode)
    assert all("launch-bound" in str(point.reason) for point in found.caches["int8"].decode)


def test_decoding_by_one_program_goes_round_in_the_same_cache() -> None:
    """As on a GPU, where a repeat writes over the tokens of the last; a state is refused as launch-bound."""
    spec = zoo.load("small", d_model=16, n_layers=1, vocab_size=32, **{"block.mixer.heads": 2})
    with torch.no_grad():
        seconds = Point(zoo.build(spec).eval(), 8, 2, 0.01).passes.compiled_decode_seconds(0, 3, "eager")
        assert [next(seconds) > 0 for _ in range(3)] == [True] * 3
        state = zoo.build(zoo.load("small", d_model=16, n_layers=1, vocab_size=32, **{"block.mixer": "mamba2"})).eval()
        with pytest.raises(SpecError, match="launch-bound"):
            next(Point(state, 8, 2, 0.01).passes.compiled_decode_seconds(0, 3, "eager"))
        packed = Point(zoo.build(spec).eval(), 8, 2, 0.01, kind=Int8())
        with pytest.raises(SpecError, match=r"launch-bound.*plain keys and values"):
            next(packed.passes.compiled_decode_seconds(0, 3, "eager"))
