"""A score does not depend on what else is in the batch, whatever the model is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance

import zoo
from evals.conventions import Conventions
from evals.harness.lm import ZooLM
from evals.reading.passes import obstacle
from tests.many import few
from zoo.conformance import matrix
from zoo.conformance.combinations import random_model
from zoo.spec import longest_text

AXES = ("mixer", "mixer.position", "mixer.position.scaling", "mixer.sparsity")
OTHERS = tuple(sorted(set(matrix.axes()) - set(AXES)))
LENGTHS = (3, 40, 9, 57, 21, 40)
NEW = 6


class Numbers(Conventions):
    """Text is numbers, which are the tokens."""

    first = 1
    ends = frozenset([0])

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    encode_bare = encode

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        return self.encode(context), self.encode(continuation)

    def rolling(self, text: str) -> list[int]:
        return self.encode(text)

    @property
    def identity(self) -> str:
        return "numbers"


def _asked(kind: str, arguments: list[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def _options(axes: Sequence[str]) -> list[matrix.AxisOption]:
    return [option for axis in axes for option in matrix.axes()[axis]]


def _check(option: matrix.AxisOption) -> None:
    spec = matrix.combine((option,))
    if obstacle(spec):
        return
    model: zoo.Decoder = random_model(spec).double().eval()
    room = min(longest_text(spec) or 64, 64)
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(1, spec.vocab_size, (length,), generator=draw).tolist() for length in LENGTHS]
    rows = [row[: room - NEW] for row in rows]
    texts = [" ".join(map(str, row)) for row in rows]
    pairs = [(text.rsplit(" ", 2)[0], " ".join(text.split()[-2:])) for text in texts]
    prompts = [(text, {"max_gen_toks": NEW, "until": []}) for text in texts]
    alone, together = (ZooLM(model, Numbers(), context=room, batch=batch) for batch in (1, len(texts)))
    expected = [total for total, _ in alone.loglikelihood(_asked("loglikelihood", pairs))]
    found = [total for total, _ in together.loglikelihood(_asked("loglikelihood", pairs))]
    assert found == pytest.approx(expected, abs=1e-5)
    generated = alone.generate_until(_asked("generate_until", prompts))
    assert together.generate_until(_asked("generate_until", prompts)) == generated


@pytest.mark.parametrize("option", few(_options(AXES), 20), ids=str)
def test_positions_and_mixers(option: matrix.AxisOption) -> None:
    _check(option)


@pytest.mark.slow
@pytest.mark.parametrize("option", _options(OTHERS), ids=str)
def test_every_other_part(option: matrix.AxisOption) -> None:
    _check(option)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_the_sweep_would_notice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other lengths in one pass do move log p under scalings that depend on the length."""
    option = next(each for each in matrix.axes()["mixer.position.scaling"] if each.name.startswith(kind))
    monkeypatch.setattr("evals.reading.passes.depends_on_length", lambda spec: False)
    with pytest.raises(AssertionError):
        _check(option)
