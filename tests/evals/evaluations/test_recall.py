"""Associative recall on text against a loop over tokens, and for a model that copies."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import evals.evaluations.recall
import zoo
from evals.evaluations.recall import RecallSpec, distances, loss_by_recall, occurrences
from evals.found import Found
from evals.reading.windows import Text, ratio
from evals.spec import EvalSpec
from zoo.model import Decoder

CONTEXT = 12
VOCABULARY = 9


def model_of(vocabulary: int = VOCABULARY, **edits: Any) -> Decoder:
    base = {"d_model": 16, "n_layers": 1, "vocab_size": vocabulary, "block.mixer.heads": 2}
    return zoo.build(zoo.load("small", **(base | edits)), seed=3).double()


def draw(tokens: int, seed: int = 1, before: tuple[int, ...] = ()) -> Text:
    """Few kinds of tokens, some of them often, so that pairs come again; one stands for no byte."""
    source = np.random.default_rng(seed)
    weights = (1 + np.arange(VOCABULARY)) ** -1.5
    found = source.choice(VOCABULARY, tokens, p=weights / weights.sum())
    return Text(found.astype("<u2"), np.where(found == 3, 0, 1 + found % 4).astype(np.uint32), before)


TRAIN = draw(600, seed=2).tokens


def read(model: Decoder, text: Text, context: int = CONTEXT, train: Any = TRAIN, **spec: Any) -> Found:
    given = RecallSpec(**({"tokens": 600, "frequent": None} | spec))
    return loss_by_recall(model, text, train, given, context=context, batch=4, seed=0)


def rows_of(found: Found, part: str) -> list[dict[str, Any]]:
    return [row for row in found.rows if row["part"] == part]


Target = tuple[int, int, int, float, int]


def by_hand(model: Decoder, text: Text, starts: list[int], length: int) -> list[Target]:
    """(stretch, target's place, distance or 0, nats, bytes) of every target, each from its own prefix."""
    found = []
    for stretch, start in enumerate(starts):
        seen = text.tokens.tolist()
        seen[start] = text.before[-1] if text.before else seen[start]
        for place in range(start + 1, start + length + 1):
            pair = seen[place - 1 : place + 1]
            earlier = [p for p in range(start + 1, place) if seen[p - 1 : p + 1] == pair]
            with torch.inference_mode():
                tokens = torch.tensor([[*text.before[:-1], *seen[start:place]]])
                nats = -float(model(tokens)[0, -1].log_softmax(-1)[seen[place]])
            found.append((stretch, place, place - earlier[-1] if earlier else 0, nats, int(text.sizes[place])))
    return found


def jackknifed(values: list[Target], count: int, weight: Any) -> tuple[float, float]:
    """Σ nats / Σ weight, and the error over stretches, one left out at a time."""

    def of(some: list[Target]) -> float:
        return float(sum(t[3] for t in some) / sum(weight(t) for t in some))

    without = [of([t for t in values if t[0] != stretch]) for stretch in range(count)]
    return of(values), math.sqrt((count - 1) / count * sum((w - np.mean(without)) ** 2 for w in without))


@pytest.mark.parametrize(("frequent", "before"), [(None, ()), (30, ()), (30, (0,)), (None, (4, 1))])
def test_every_part_is_the_plain_mean(frequent: int | None, before: tuple[int, ...]) -> None:
    model, text = model_of(), draw(800, before=before)
    found = read(model, text, frequent=frequent)
    starts = [int(sample.doc_hash.split()[1].rstrip(",")) for sample in found.items]
    assert len(starts) == 600 // CONTEXT
    counted = Counter(zip(TRAIN[:-1].tolist(), TRAIN[1:].tolist(), strict=True))
    targets = by_hand(model, text, starts, CONTEXT)

    def is_frequent(target: Target) -> bool:
        of_window = target[1] - 1 in starts and before
        pair = (before[-1] if of_window else int(text.tokens[target[1] - 1]), int(text.tokens[target[1]]))
        return frequent is not None and counted[pair] > frequent

    hits = [t for t in targets if t[2] and not is_frequent(t)]
    parts = {
        "ar_hits": hits,
        "frequent": [t for t in targets if t[2] and is_frequent(t)],
        "unseen": [t for t in targets if not t[2]],
    }
    assert len(hits) > 20
    assert bool(parts["frequent"]) == (frequent is not None)
    check = [(row, part) for name, part in parts.items() for row in rows_of(found, name)]
    assert len(check) == 3
    for bucket in rows_of(found, "distance"):
        within = [t for t in hits if bucket["first"] <= t[2] <= bucket["last"]]
        assert bucket["tokens"] == len(within) > 0
        check.append((bucket, within))
    assert sum(bucket["tokens"] for bucket in rows_of(found, "distance")) == len(hits)
    for stored, part in check:
        assert (stored["tokens"], stored["bytes"]) == (len(part), sum(t[4] for t in part))
        if part and len({t[0] for t in part}) > 1:
            value, error = jackknifed(part, len(starts), lambda t: 1)
            assert stored["nats_per_token"] == pytest.approx(value, rel=1e-9)
            assert stored["stderr"] == pytest.approx(error, rel=1e-6)
            bits, error = jackknifed(part, len(starts), lambda t: t[4] * math.log(2))
            assert stored["bits_per_byte"] == pytest.approx(bits, rel=1e-9)
            assert stored["bits_per_byte_stderr"] == pytest.approx(error, rel=1e-6)
    for name in ("ar_hits", "unseen"):
        score = found.scores["recall"][f"loss_{name}_1x"]
        assert score.value == rows_of(found, name)[0]["nats_per_token"]
        metrics: list[Any] = [sample.metrics for sample in found.items]
        items = [of[f"loss_{name}_1x"] for of in metrics if f"loss_{name}_1x" in of]
        mean = sum(item["sum"] for item in items) / sum(item["weight"] for item in items)
        assert mean == pytest.approx(score.value)


class Copying(Decoder):
    """Model that predicts what followed the latest occurrence of the last token, as sure as softmax allows; without one
    it predicts nothing."""

    def hidden(self, tokens: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.spec.vocab_size)
        for row, text in enumerate(tokens.tolist()):
            for place, token in enumerate(text):
                earlier = [p for p in range(place) if text[p] == token]
                if earlier:
                    logits[row, place, text[earlier[-1] + 1]] = 30.0
        return logits

    def read_out(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


def test_a_model_that_copies_knows_what_it_has_seen_at_every_distance() -> None:
    """Each window goes round in a circle of its own length, so that no token is followed by two others."""
    vocabulary, source = 50, np.random.default_rng(0)
    circles = [source.choice(np.arange(1, vocabulary), length, replace=False) for length in [1, 2, 3, 5, 8, 11, 15] * 5]
    tokens = np.concatenate([*(np.resize(circle, 32) for circle in circles), [0]])
    model = Copying(model_of(vocabulary).spec)
    text = Text(tokens, np.ones(len(tokens), dtype=np.int64))
    found = read(model, text, 32, train=tokens[:2], tokens=len(tokens))
    assert [bucket["last"] for bucket in rows_of(found, "distance")] == [1, 2, 4, 8, 16]
    assert all(bucket["nats_per_token"] < 1e-9 for bucket in rows_of(found, "distance"))
    hits, unseen = (found.scores["recall"][f"loss_{part}_1x"].value for part in ("ar_hits", "unseen"))
    assert hits is not None and hits < 1e-9
    assert unseen is not None and unseen >= math.log(vocabulary)


@pytest.mark.parametrize("kinds", [2, 5, 40])
def test_distances_are_those_of_a_loop(kinds: int) -> None:
    pairs = np.random.default_rng(kinds).integers(kinds, size=(3, 4, 50))
    found = distances(pairs)
    for at in np.ndindex(pairs.shape):
        row = pairs[at[:-1]]
        earlier = [place for place in range(at[-1]) if row[place] == row[at[-1]]]
        assert found[at] == (at[-1] - earlier[-1] if earlier else 0)


def test_pairs_are_counted_across_pieces_and_a_long_text_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evals.evaluations.recall, "PIECE", 7)
    counted = Counter(zip(TRAIN[:-1].tolist(), TRAIN[1:].tolist(), strict=True))
    asked = np.arange(VOCABULARY**2).reshape(9, 9)
    expected = [[counted[(a, b)] for b in range(VOCABULARY)] for a in range(VOCABULARY)]
    np.testing.assert_array_equal(occurrences(asked, TRAIN, VOCABULARY), expected)
    monkeypatch.setattr(evals.evaluations.recall, "COUNTED", 7 * 20)
    part = occurrences(asked, TRAIN, VOCABULARY)
    assert part.sum() == pytest.approx(len(TRAIN) - 1)
    assert not np.array_equal(part, expected)
    assert stats.pearsonr(part.ravel(), np.ravel(expected)).statistic > 0.2


def test_the_error_of_a_ratio_of_equal_weights_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=11)
    value, error = ratio(values, np.ones(11))
    assert value == pytest.approx(values.mean())
    assert error == pytest.approx(stats.sem(values))
    assert ratio(values, np.zeros(11)) == (None, None)
    assert ratio(values[:2], np.array([3, 0])) == (pytest.approx(values[:2].sum() / 3), None)


def test_longer_windows_hold_more_that_was_seen() -> None:
    found = read(model_of(), draw(800), multiples=(1, 2, 4))
    shares = [row["tokens"] for row in rows_of(found, "ar_hits")]
    assert shares == sorted(shares)
    assert len(set(shares)) == 3
    parts = (rows_of(found, part) for part in ("ar_hits", "frequent", "unseen"))
    assert len({sum(row["tokens"] for row in rows) for rows in zip(*parts, strict=True)}) == 1
    assert list(found.scores["recall"]) == [f"loss_{part}_{m}x" for m in (1, 2, 4) for part in ("ar_hits", "unseen")]
    learned = model_of(**{"block.mixer.position": {"kind": "learned", "length": 2 * CONTEXT}})
    (row,) = read(learned, draw(800), multiples=(4,)).rows
    assert row["reason"] == "reads at most 24 tokens"


def test_where_all_is_frequent_there_are_no_hits() -> None:
    found = read(model_of(), draw(800), frequent=0, train=np.tile(TRAIN, 3))
    assert [row["tokens"] for row in rows_of(found, "ar_hits")] == [0]
    assert rows_of(found, "distance") == []
    assert list(found.scores["recall"]) == ["loss_unseen_1x"]


def test_it_is_json_also_where_there_is_no_text_or_a_model_is_broken() -> None:
    (row,) = read(model_of(), draw(CONTEXT)).rows
    assert str(row["reason"]).startswith("held-out text has 12 tokens")
    broken = model_of()
    with torch.no_grad():
        broken.embedding.weight.fill_(float("nan"))
    found = read(broken, draw(800))
    json.dumps(found.rows, allow_nan=False)
    assert found.scores["recall"]["loss_ar_hits_1x"].value is None


def test_a_request_without_it_is_as_it_was() -> None:
    assert "recall" not in EvalSpec().model_dump(mode="json")
    spec = EvalSpec.model_validate({"tasks": [], "recall": True})
    assert spec.model_dump(mode="json")["recall"] == {"multiples": [1], "tokens": 65536, "frequent": 1250}
    assert EvalSpec.model_validate(spec.model_dump(mode="json")) == spec
