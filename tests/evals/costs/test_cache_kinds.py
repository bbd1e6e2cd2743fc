"""Measurements of every kind of cache: bytes by hand, what is refused, and the loss of text that is read through it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import zoo
from evals.costs.point import Point, Turn
from evals.costs.spec import MeasureSpec
from evals.costs.speed import TOKENS, loss_by_cache, measure
from evals.reading.windows import Text
from tests.documents import plain_of
from tests.many import few
from zoo.caches import cache_kind
from zoo.caches.sink import SinkCache
from zoo.caching.cache import Cache
from zoo.model import Decoder

KINDS = ["int8", {"kind": "int4", "group": 4}, {"kind": "sink", "sinks": 2, "recent": 6}, {"kind": "paged", "page": 5}]
LABELS = ["int8", "int4, group 4", "sink, sinks 2, recent 6", "paged, page 5"]
HEADS, FEATURES, LAYERS = 2, 8, 2


def quick(caches: list[Any], **other: Any) -> MeasureSpec:
    return MeasureSpec.model_validate(
        {"contexts": (16, 7), "batches": (1, 3), "seconds": 1e-3, "caches": caches, **other}
    )


def model_of(**edits: Any) -> Decoder:
    shape = {"d_model": 32, "n_layers": LAYERS, "vocab_size": 60, "block.mixer.kv_heads": HEADS}
    model = zoo.build(zoo.load("small", **{**shape, **edits})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model


def text_of(tokens: int, before: tuple[int, ...] = ()) -> Text:
    draw = np.random.default_rng(1)
    return Text(draw.integers(60, size=tokens), np.ones(tokens, dtype=np.int64), before)


def test_a_request_without_kinds_is_as_it_was() -> None:
    """Stored measurements keep their names."""
    plain = {"contexts": [64, 256], "batches": [1, 8], "seconds": 0.3}
    assert MeasureSpec().model_dump(mode="json") == plain
    assert MeasureSpec.model_validate({"caches": ["plain"]}).model_dump(mode="json") == plain
    asked = MeasureSpec.model_validate({"caches": ["int4", {"kind": "int4", "group": 16}, "int4"]})
    assert [kind.label for kind in asked.caches] == ["plain", "int4", "int4, group 16"]
    assert MeasureSpec.model_validate(asked.model_dump(mode="json")) == asked
    with pytest.raises(ValueError, match="int3"):
        MeasureSpec.model_validate({"caches": ["int3"]})


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return plain_of(measure(model_of(), quick(KINDS), text_of(200)))


@pytest.mark.slow
def test_every_kind_is_measured_at_every_point(document: dict[str, Any]) -> None:
    json.dumps(document, allow_nan=False)
    assert list(document["caches"]) == LABELS
    for found in document["caches"].values():
        for part in ("cache", "prefill", "decode"):
            assert [(p["context"], p["batch"]) for p in found[part]] == list(itertools.product((7, 16), (1, 3)))
            assert not any("reason" in point for point in found[part])
        assert all(p["tokens_per_second"]["median"] > 0 for p in found["prefill"] + found["decode"])
        assert all(p["seconds_to_first_token"]["median"] > 0 for p in found["prefill"])
        assert all(p["seconds_per_output_token"]["median"] > 0 for p in found["decode"])
        assert all(p["bandwidth_utilisation"]["median"] > 0 for p in found["decode"])
    assert set(document["cache_loss"]["kinds"]) == {"plain", *LABELS}
    alone = plain_of(measure(model_of(), quick([]), text_of(200)))
    assert (alone["caches"], "cache_loss" in alone) == ({}, False)


def bytes_by_hand(label: str, tokens: int) -> int:
    """Bytes of one row in float32: keys and values of two heads of eight features, in two layers."""
    vectors = 2 * HEADS * LAYERS
    each = {
        "plain": lambda: 4 * FEATURES * tokens,
        "int8": lambda: (FEATURES + 2 * 4) * tokens,  # a group of 32 holds all features; its least and its step
        "int4, group 4": lambda: (FEATURES // 2 + 2 * 2 * 4) * tokens,
        "sink, sinks 2, recent 6": lambda: 4 * FEATURES * min(tokens, 8),
        "paged, page 5": lambda: 4 * FEATURES * 5 * -(-tokens // 5),
    }
    return vectors * each[label]()


@pytest.mark.parametrize("label", ["plain", *LABELS])
def test_bytes_are_those_by_hand(label: str, document: dict[str, Any]) -> None:
    found = document if label == "plain" else document["caches"][label]
    for point in found["cache"]:
        expected = point["batch"] * bytes_by_hand(label, point["context"])
        assert point["declared_bytes"] == point["allocated_bytes"] == expected
    for point in found["decode"]:
        plain = next(p for p in document["decode"] if (p["context"], p["batch"]) == (point["context"], point["batch"]))
        middle = point["context"] + 8
        less = point["batch"] * (bytes_by_hand("plain", middle) - bytes_by_hand(label, middle))
        assert point["bytes_read_per_step"] == plain["bytes_read_per_step"] - less


@pytest.mark.parametrize(
    ("edits", "kind", "reason"),
    [
        ({"block.mixer": "mamba2"}, "int8", "cache: int8 needs a layer with a plain KV cache"),
        ({"block.mixer.position": "learned"}, "sink", "sink cannot shift learned positions"),
        ({}, {"kind": "paged", "page": 4, "pages": 2}, "all 2 pages of the cache are in use"),
    ],
)
def test_a_kind_that_a_model_cannot_have_says_why(edits: dict[str, Any], kind: Any, reason: str) -> None:
    model = model_of(**{"block.mixer.kv_heads": None, **edits} if "block.mixer" not in edits else edits)
    document = plain_of(measure(model, quick([kind, "plain"], contexts=(16,), batches=(1,)), text_of(200)))
    (found,) = document["caches"].values()
    assert all(reason in found[part][0]["reason"] for part in ("prefill", "decode", "cache"))
    refused = document["cache_loss"]["kinds"][cache_kind(kind).label]
    assert reason in refused["reason"]
    assert "reason" not in document["decode"][0]


@pytest.mark.parametrize("before", few([(5, 6), ()], 1))
def test_the_loss_is_that_of_reading_token_by_token(before: tuple[int, ...]) -> None:
    model, text, length = model_of().double(), text_of(400, before), 150
    plain, *others = kinds = [cache_kind(kind) for kind in ("plain", *KINDS)]
    found = plain_of(loss_by_cache(model, text, kinds, length))
    assert found["windows"] == 2
    nats = {kind: by_hand(model, text, kind, length) for kind in kinds}
    for kind in kinds:
        value = found["kinds"][kind.label]["nats_per_token"]["value"]
        assert value == pytest.approx(nats[kind].mean(), rel=1e-5), kind.label
    for kind in others:
        added = nats[kind].mean(axis=1) - nats[plain].mean(axis=1)
        score = found["kinds"][kind.label]["added"]
        assert score["value"] == pytest.approx(added.mean(), rel=1e-3, abs=1e-6), kind.label
        assert score["stderr"] == pytest.approx(stats.sem(added), rel=1e-2, abs=1e-6), kind.label


def by_hand(model: Decoder, text: Text, kind: Any, length: int) -> Any:
    """(windows, length) nats, one token of one window at a time."""
    windows = text.tokens[: 2 * length + 1]
    rows = [windows[:-1].reshape(2, length)[i].tolist() for i in range(2)]
    goals = [windows[1:].reshape(2, length)[i].tolist() for i in range(2)]
    out = []
    for (first, *tokens), targets in zip(rows, goals, strict=True):
        reads = [*(text.before or (first,)), *tokens]
        cache = model.new_cache(1, len(reads), kind=kind)
        with torch.no_grad():
            logits = [model(torch.tensor([[token]]), cache)[0, -1] for token in reads][-length:]
        out.append([-float(row.log_softmax(-1)[goal]) for row, goal in zip(logits, targets, strict=True)])
    return np.array(out)


def test_a_plain_cache_reads_as_none_does_and_pages_lose_nothing() -> None:
    model, text = model_of().double(), text_of(TOKENS // 16)
    found = plain_of(loss_by_cache(model, text, [cache_kind("plain"), cache_kind("paged"), cache_kind("int4")], 100))
    tokens, goals = (torch.from_numpy(text.tokens[i : 1000 + i]).view(10, 100) for i in (0, 1))
    with torch.no_grad():
        nats = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), goals.flatten())
    assert found["kinds"]["plain"]["nats_per_token"]["value"] == pytest.approx(float(nats), rel=1e-9)
    assert found["kinds"]["paged"]["added"]["value"] == pytest.approx(0, abs=1e-12)
    assert abs(found["kinds"]["int4"]["added"]["value"]) > 1e-6


def test_text_or_positions_that_end_are_a_reason() -> None:
    kinds = [cache_kind("plain"), cache_kind("int8")]
    assert plain_of(loss_by_cache(model_of(), text_of(20), kinds, 20))["reason"].startswith(
        "held-out text has 20 tokens"
    )
    learned = model_of(**{"block.mixer.position": {"kind": "learned", "length": 16}})
    assert plain_of(loss_by_cache(learned, text_of(50), kinds, 20))["reason"] == "reads at most 16 tokens"


def test_kinds_take_turns_with_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the machine does for a while would fall on one kind alone. One that fails is asked no more."""
    seen: list[tuple[str, str, int]] = []
    attempt = Point.attempt

    def watch(self: Point, phase: str, number: int) -> dict[str, Any]:
        seen.append((phase, self.kind.label, number))
        if self.kind.label == "int8" and number == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return attempt(self, phase, number)

    monkeypatch.setattr(Point, "attempt", watch)
    spec = MeasureSpec.model_validate({"contexts": [8], "batches": [1], "seconds": 1e-9, "caches": ["int8", "int4"]})
    document = plain_of(measure(model_of(**{"block.mixer.heads": 1, "block.mixer.kv_heads": 1}), spec))
    expected = [
        ("plain", 0),
        ("int8", 0),
        ("int4", 0),
        ("plain", 1),
        ("int8", 1),
        ("int4", 1),
        ("plain", 2),
        ("int4", 2),
    ]
    assert seen == [(phase, *each) for phase in ("prefill", "decode") for each in expected]
    assert "out of memory" in document["caches"]["int8"]["prefill"][0]["reason"]
    for part in (document, document["caches"]["int4"]):
        assert part["decode"][0]["seconds_per_output_token"]["median"] > 0


def test_the_numbers_of_all_turns_count() -> None:
    point = Point(model_of(), 10, 2, 1e-9, turns=2)
    found = plain_of(point.prefilled([Turn([1.0, 0.5], 7), Turn([0.25], 9)]))
    assert found["seconds_to_first_token"]["median"] == 0.5
    assert found["turns"] == (20 / 0.75, 20 / 0.25)
    assert found["peak_memory_bytes"] == 7  # what larger points have freed since is kept
    assert point._repeated(iter([1.0, 0.5, 0.25])) == [1.0, 0.5]


def test_repeats_copy_the_cache_and_not_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with sinks knows the layer that moves their keys."""
    model = model_of()
    point = Point(model, 16, 1, 1e-9, kind=cache_kind({"kind": "sink", "sinks": 2, "recent": 6}))
    read: list[Cache] = []
    hidden = model.hidden

    def watch(tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
        read.append(cache)
        return hidden(tokens, cache)

    monkeypatch.setattr(model, "hidden", watch)
    with torch.inference_mode():
        list(itertools.islice(point.passes.issued_decode_seconds(), 2))
    first, second = ([layer for layer in cache.layers if isinstance(layer, SinkCache)] for cache in read[1::16])
    for layer, block in zip(first, model.blocks, strict=True):
        assert layer._moved.__self__ is block.mixer  # type: ignore[attr-defined]
    assert first[0].buffers[0].data_ptr() != second[0].buffers[0].data_ptr()
