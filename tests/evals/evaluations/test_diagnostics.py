"""Accuracy by difficulty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
import torch

import zoo
from evals.evaluations.diagnostics import DiagnosticsSpec
from evals.found import Found
from evals.reading.question import Question
from evals.subject import Subject, SyntheticTask
from zoo.loss import IGNORED
from zoo.model import Decoder


@pytest.fixture(scope="module")
def model() -> Decoder:
    return zoo.build(zoo.load("small", d_model=16, n_layers=1, vocab_size=9, **{"block.mixer.position": LEARNED}))


LEARNED = {"kind": "learned", "length": 8}


def ask(model: Decoder, *questions: Question) -> Found:
    def drawn(at: Mapping[str, Sequence[int]], examples: int, seed: int) -> Iterable[Question]:
        assert (at, examples, seed) == ({"length": [4]}, 4, 7)
        return questions

    subject = Subject(model, context=8, batch=2, seed=7)
    return DiagnosticsSpec(examples=4, at={"length": [4]}).run(subject, SyntheticTask("toy", drawn))


def question(model: Decoder, length: int, wrong: int) -> Question:
    """Four examples whose last two tokens are asked: what the model says, but for so many that are off by one."""
    tokens = np.random.default_rng(length).integers(9, size=(4, length))
    with torch.no_grad():
        said = model(torch.from_numpy(tokens[:, :8])).argmax(-1).numpy()[:, -2:]
    off = (np.arange(8) < wrong).reshape(4, 2)
    targets = np.full((4, length), IGNORED)
    targets[:, -2:] = (said + off) % 9
    return Question({"length": length, "same": 1}, tokens, targets, 1 / length, None)


def test_an_examples_score_is_its_share_of_right_answers(model: Decoder) -> None:
    found = ask(model, question(model, 4, wrong=3), question(model, 6, wrong=0))
    first, second = found.rows
    shares = np.array([0.0, 0.5, 1.0, 1.0])
    assert (first["accuracy"], first["stderr"]) == pytest.approx((shares.mean(), shares.std(ddof=1) / 2))
    assert second["accuracy"] == 1
    scores = found.scores["toy"]
    assert set(scores) == {"accuracy", "accuracy (length 4)", "accuracy (length 6)"}
    assert scores["accuracy"].value == pytest.approx((shares.mean() + 1) / 2)
    assert scores["accuracy"].chance == pytest.approx((1 / 4 + 1 / 6) / 2)
    assert [sample.metrics["accuracy"] for sample in found.items] == [*shares, 1, 1, 1, 1]
    assert len({(sample.doc_id, sample.doc_hash) for sample in found.items}) == 8


def test_longer_than_the_positions_is_a_reason(model: Decoder) -> None:
    found = ask(model, question(model, 6, 0), question(model, 12, 0))
    fits, long = found.rows
    assert fits["accuracy"] == 1
    assert long == {"level": {"length": 12, "same": 1}, "length": 12, "reason": "reads at most 8 tokens"}
    assert set(found.scores["toy"]) == {"accuracy"}
