"""Speed and cache measurements: what is declared, what is allocated, and what the numbers are made of."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

import evals.speed
import zoo
from evals.spec import MeasureSpec
from evals.speed import Point, measure
from zoo.model import Decoder

QUICK = MeasureSpec(contexts=(16, 8), batches=(1, 3), seconds=0.001)


def test_every_point_is_measured(model: Decoder) -> None:
    document = measure(model, QUICK)
    json.dumps(document, allow_nan=False)
    assert document["schema"] == 1
    assert document["request"] == QUICK.model_dump(mode="json")
    for part in ("cache", "prefill", "decode"):
        points = [(p["context"], p["batch"]) for p in document[part]]
        assert points == list(itertools.product((8, 16), (1, 3)))
    for point in document["prefill"] + document["decode"]:
        rates = point["tokens_per_second"]
        assert 0 < rates["q25"] <= rates["median"] <= rates["q75"]


@pytest.mark.parametrize("window", [None, 8])
def test_cache_bytes_are_keys_and_values_of_every_layer(window: int | None) -> None:
    """2 (keys, values) × L × K × d × 4 bytes, per token that the cache holds."""
    model = zoo.build(zoo.load("small", d_model=32, n_layers=2, **{"block.mixer.window": window}))
    document = measure(model, QUICK)
    per_token = 2 * 2 * 4 * 8 * 4
    for point in document["cache"]:
        held = min(point["context"], window or point["context"])
        assert point["declared_bytes"] == point["allocated_bytes"] == point["batch"] * held * per_token
    assert document["kv_context"] == 16
    assert document["kv_bytes_per_token"] == per_token * (min(16, window or 16) / 16)


def test_rates_are_quartiles_without_the_warm_up(model: Decoder) -> None:
    point = Point(model, context=10, batch=2, seconds=1e-9)
    found = point._rate(iter([100.0, 1.0, 0.5, 0.25]), tokens=10)
    assert found == pytest.approx(
        dict(zip(("q25", "median", "q75"), np.percentile([20, 40, 80], (25, 50, 75)), strict=True))
    )


def test_decoding_always_starts_from_the_same_full_cache(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def watch(tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        lengths.append(cache.length)
        return original(tokens, cache)

    point = Point(model, context=10, batch=2, seconds=1e-9)
    original = point._next
    monkeypatch.setattr(point, "_next", watch)
    with torch.inference_mode():
        list(itertools.islice(point._decode_seconds(), 3))
    assert lengths == [0, *[*range(10, 26)] * 3]


def test_a_point_without_room_says_so(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evals.speed, "available_bytes", lambda: 2 * 2 * 2 * 2 * 8 * 4 * 16)  # two caches of 16 tokens
    document = measure(model, QUICK)
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
    assert "Tried to allocate" in measure(model, QUICK)["decode"][0]["reason"]
    monkeypatch.setattr(Decoder, "new_cache", lambda *_, **__: torch.zeros(2) + torch.zeros(3))
    with pytest.raises(RuntimeError, match="must match"):
        measure(model, QUICK)


@pytest.mark.gpu
def test_on_cuda(model: Decoder) -> None:
    document = measure(zoo.build(model.spec).cuda(), QUICK)
    assert all("tokens_per_second" in point for point in document["decode"])
