"""Measurements of encoders, encoder–decoders and prefix models: the passes that are timed, and bytes by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch

import zoo
from ablate.wings.foretell.roofline import fit, predict
from evals.costs.point import Point
from evals.costs.spec import NO_CACHE, MeasureSpec
from evals.costs.speed import measure
from tests.ablate.wings.foretell.test_fit import allocated
from tests.ablate.wings.foretell.test_roofline import IDEAL
from tests.documents import plain_of
from tests.evals.costs.test_cache_kinds import text_of
from tests.evals.costs.test_measure import QUICK, approx_quartiles, repeats_of
from zoo.mixers._cross import CrossAttentionLayer
from zoo.model import Decoder

SMALL = {"d_model": 32, "n_layers": 2, "vocab_size": 300, "block.mixer.heads": 4}
ENCODER = {"visible": "all"}
BOTH = {"encoder.n_layers": 3, "block.cross.kv_heads": 2}
ELEMENTS = 2 * 2 * 4 * 8, 2 * 2 * 2 * 8
"""Numbers of `BOTH` per token: keys and values, 2 layers, heads, 8 features; of the decoder's own, of the encoder's."""


def model_of(edits: dict[str, Any]) -> Decoder:
    return zoo.build(zoo.load("small", **SMALL, **edits), seed=1).eval()


class Passes:
    """Recorder of the number of tokens given to every pass of the stacks and every making of cross keys."""

    def __init__(self, model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        self._watch(monkeypatch, type(model), "embed", "reads")
        self._watch(monkeypatch, type(model), "encode", "encodes")
        self._watch(monkeypatch, type(model), "read_out", "heads")
        for number, layer in enumerate(m for m in model.modules() if isinstance(m, CrossAttentionLayer)):
            layer.k.register_forward_hook(lambda _, x, __, n=number: self.seen.append((f"cross {n}", x[0].shape[1])))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, of: type[Decoder], name: str, said: str) -> None:
        original = getattr(of, name)

        def watched(model: Decoder, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.seen.append((said, x.shape[1]))
            return original(model, x, *args, **kwargs)

        monkeypatch.setattr(of, name, watched)

    def of(self, timings: Any, repeats: int) -> list[tuple[str, int]]:
        """Those of so many repeats."""
        self.seen.clear()
        with torch.inference_mode():
            list(itertools.islice(timings, repeats))
        return list(self.seen)


def test_an_encoder_reads_and_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(ENCODER)
    document = plain_of(measure(model, QUICK))
    json.dumps(document, allow_nan=False)
    assert "kv_bytes_per_token" not in document
    assert [p["context"] for p in document["prefill"]] == [8, 8, 16, 16]
    for point in document["prefill"]:
        assert point["peak_memory_bytes"] > 0
        assert "seconds_to_first_token" not in point
    assert {p["reason"] for part in ("cache", "decode") for p in document[part]} == {NO_CACHE}
    point = Point(model, 10, 2, 1e-9)
    assert Passes(model, monkeypatch).of(point.passes.prefill_seconds(), 2) == [("reads", 10)] * 2
    prefill = plain_of(Point(model, 10, 2, 1e-9, clock=repeats_of(100.0, 0.5, 1.0, 0.25)).prefill())
    assert prefill["tokens_per_second"] == approx_quartiles([40, 20, 80])
    assert prefill["seconds_to_read"] == approx_quartiles([0.5, 1.0, 0.25])


def test_the_first_token_takes_the_encoder_and_one_pass_of_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(BOTH)
    passes, point = Passes(model, monkeypatch), Point(model, 10, 2, 1e-9)
    first = [("encodes", 10), ("reads", 1), ("cross 0", 10), ("cross 1", 10), ("heads", 1)]
    assert passes.of(point.passes.prefill_seconds(), 2) == first * 2
    full = [("encodes", 10), ("reads", 10), ("cross 0", 10), ("cross 1", 10), ("heads", 1)]
    assert passes.of(point.passes.issued_decode_seconds(), 2) == full + [("reads", 1), ("heads", 1)] * 32


def test_a_cache_holds_what_the_encoder_read_and_as_much_that_was_written() -> None:
    document = plain_of(measure(model_of(BOTH), QUICK))
    own, theirs = ELEMENTS
    for point in document["cache"]:
        by_hand = 4 * point["batch"] * point["context"] * (own + theirs)
        assert point["declared_bytes"] == point["allocated_bytes"] == by_hand
    assert document["kv_bytes_per_token"] == 4 * (own + theirs)
    assert all(point["seconds_to_first_token"]["median"] > 0 for point in document["prefill"])
    assert all(point["bandwidth_utilisation"]["median"] > 0 for point in document["decode"])


def test_bytes_read_are_weights_of_the_decoder_and_both_parts_of_the_cache() -> None:
    """The bytes read match a count by hand: all parameters but the encoder's and those that made keys and values of its
    output; 10 tokens of the encoder's, and 18 of the decoder's halfway through 16 new ones."""
    model = model_of(BOTH)
    seconds = [0.5, 1.0, 0.25]
    point = Point(model, context=10, batch=2, seconds=1e-9, clock=repeats_of(100.0, *seconds), bandwidth=1e9)
    decode = plain_of(point.decode())
    made = [layer for m in model.modules() if isinstance(m, CrossAttentionLayer) for layer in (m.k, m.v)]
    assert model.encoder is not None
    unread = [*model.encoder.parameters(), *(p for layer in made for p in layer.parameters())]
    weights = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in unread)
    own, theirs = ELEMENTS
    read = 4 * (weights + 2 * (18 * own + 10 * theirs))
    assert decode["bytes_read_per_step"] == read
    assert decode["bandwidth_utilisation"] == approx_quartiles([read * 16 / s / 1e9 for s in seconds])


def test_other_caches_store_the_decoders_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """An int8 cache: a byte for each number and four for the scale of each head's; the encoder's part is plain."""
    spec = MeasureSpec(contexts=(8,), batches=(1,), seconds=0.001, caches=("int8",))
    document = plain_of(measure(model_of(BOTH), spec, text_of(600)))
    (point,) = document["caches"]["int8"]["cache"]
    plain, own = document["cache"][0]["allocated_bytes"], 4 * 8 * ELEMENTS[0]
    assert point["declared_bytes"] == point["allocated_bytes"] < plain
    assert point["allocated_bytes"] > plain - own
    assert "cache_loss" not in document, "an encoder would have to be given something to read"


def test_a_prefix_is_read_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of({"visible": "prefix"})
    told: list[list[int] | None] = []
    original = Decoder.hidden

    def watched(model: Decoder, tokens: torch.Tensor, *args: Any, **given: Any) -> torch.Tensor:
        told.append(given["prefix"].tolist() if "prefix" in given else None)
        return original(model, tokens, *args, **given)

    monkeypatch.setattr(Decoder, "hidden", watched)
    with torch.inference_mode():
        list(itertools.islice(Point(model, 10, 2, 1e-9).passes.issued_decode_seconds(), 1))
    assert told == [[10, 10], *[None] * 16]


def test_a_prefix_that_is_not_read_at_once_is_a_reason() -> None:
    spec = MeasureSpec(contexts=(4, 16), batches=(1,), seconds=0.001, caches=({"kind": "sink", "recent": 4},))
    points = plain_of(measure(model_of({"visible": "prefix"}), spec))["caches"]["sink, recent 4"]["decode"]
    assert "tokens_per_second" in points[0]
    assert "sink, recent 4 cannot read a prefix of 16 tokens in one pass" in points[1]["reason"]


@pytest.mark.parametrize("edits", [{}, ENCODER, BOTH])
def test_a_context_beyond_the_positions_is_a_reason(edits: dict[str, Any]) -> None:
    learned = {"block.mixer.position": {"kind": "learned", "length": 12}}
    document = plain_of(measure(model_of(learned | edits), QUICK))
    for part in ("cache", "prefill"):
        assert [p.get("reason") for p in document[part][2:]] == ["reads at most 12 tokens"] * 2
    assert "tokens_per_second" in document["prefill"][0]


@pytest.mark.parametrize("megabytes", [1.0, 3.0])
def test_the_largest_batch_of_an_encoder_decoder_fits_and_one_more_does_not(megabytes: float) -> None:
    model, memory = model_of(BOTH), megabytes * 1e6
    found = fit(model.spec, memory, contexts=(64,), batch=2, dtype="float32", share=1.0)
    batch, longest = found.batches[64], found.largest_context
    assert batch is not None and longest is not None
    assert allocated(model, batch, 64) <= memory < allocated(model, batch + 1, 64)
    assert allocated(model, 2, longest) <= memory < allocated(model, 2, longest + 1)


def test_an_encoder_decoder_has_a_roofline_and_an_encoder_none() -> None:
    """Memory-bound decoding by hand: weights but the encoder's and those of cross keys, and the cache, at 1e12 B/s."""
    model = model_of(BOTH)
    found = predict(model.spec, IDEAL, context=100, dtype="float32")
    assert model.encoder is not None
    made = [layer for m in model.modules() if isinstance(m, CrossAttentionLayer) for layer in (m.k, m.v)]
    unread = [*model.encoder.parameters(), *(p for layer in made for p in layer.parameters())]
    weights = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in unread)
    assert found.cache_bytes == 4 * 100 * sum(ELEMENTS) == model.new_cache(1, 100).nbytes
    assert found.decode.bytes == 4 * weights + found.cache_bytes
    assert found.decode.seconds == pytest.approx(found.decode.bytes / 1e12)
    for refused in (
        lambda spec: predict(spec, IDEAL, context=8),
        lambda spec: fit(spec, 1e9, contexts=(8,), dtype="float32"),
    ):
        with pytest.raises(zoo.SpecError, match="an encoder has no KV cache"):
            refused(zoo.load("small", visible="all"))
