"""Answers that are kept, and rows that fit: neither changes a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from tokenizers import Tokenizer
from torch import Tensor

import zoo
from evals.harness.lm import ZooLM, fingerprint
from evals.reading.passes import MOST_TOKENS, Batches
from tests.evals.bytelevel import EOS
from zoo.model import Decoder

PAIRS = [("The cat", " sat"), ("", "nothing before"), ("x" * 80, " a long context"), ("The cat", " sat")]
REQUESTS = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
SETTINGS = [{"max_gen_toks": 6}, {"max_gen_toks": 6, "do_sample": True, "temperature": 2.0}]
PROMPTS = [Instance("generate_until", {}, ("The cat", dict(s)), i) for i, s in enumerate([*SETTINGS, *SETTINGS])]


class Counting(ZooLM):
    """Counts the rows that the model reads."""

    rows = 0

    def _score(self, windows: list[Any]) -> list[tuple[float, bool]]:
        self.rows += len(windows)
        return super()._score(windows)


def adapter(model: Decoder, tokenizer: Tokenizer, answers: Path | None, **changes: Any) -> Counting:
    return Counting(model, tokenizer, **{"eos": EOS, "context": 32, "answers": answers} | changes)


def test_nothing_is_asked_twice_and_the_answers_are_the_same(
    model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "answers.db"
    plain = adapter(model, byte_tokenizer, None)
    first, second = adapter(model, byte_tokenizer, path), adapter(model, byte_tokenizer, path)
    assert plain.loglikelihood(REQUESTS) == first.loglikelihood(REQUESTS) == second.loglikelihood(REQUESTS)
    assert (plain.rows, first.rows, second.rows) == (3, 3, 0)
    texts = plain.generate_until(PROMPTS)
    assert texts == first.generate_until(PROMPTS) == second.generate_until(PROMPTS)
    assert texts[0] == texts[2] and texts[1] != texts[3], "greedy texts are alike, drawn ones are draws"


@pytest.mark.parametrize("change", [{"context": 16}, {"eos": 65}])
def test_another_model_or_context_has_answers_of_its_own(
    model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "answers.db"
    adapter(model, byte_tokenizer, path).loglikelihood(REQUESTS)
    other = zoo.build(model.spec, seed=4).eval()
    for lm, twin in (
        (adapter(other, byte_tokenizer, path), adapter(other, byte_tokenizer, None)),
        (adapter(model, byte_tokenizer, path, **change), adapter(model, byte_tokenizer, None, **change)),
    ):
        assert lm.loglikelihood(REQUESTS) == twin.loglikelihood(REQUESTS)
        assert lm.rows == 3


def test_what_was_answered_before_a_kill_is_kept(
    model: Decoder, byte_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.db"
    lm = adapter(model, byte_tokenizer, path, batch=1)
    hidden, passes = model.hidden, []

    def killed(tokens: Tensor) -> Tensor:
        passes.append(tokens)
        if len(passes) > 2:
            raise KeyboardInterrupt
        return hidden(tokens)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(model, "hidden", killed)
        lm.loglikelihood(REQUESTS)
    again = adapter(model, byte_tokenizer, path)
    again.loglikelihood(REQUESTS)
    assert again.rows == 1


def test_a_fingerprint_is_of_weights_and_architecture(model: Decoder) -> None:
    twin = zoo.build(model.spec, seed=3)
    assert fingerprint(twin) == fingerprint(model)
    with torch.no_grad():
        twin.blocks[1].mixer.q.weight[0, 0] += 1e-6
    assert fingerprint(twin) != fingerprint(model)
    other = zoo.build(model.spec.edit({"embedding_scale": 2.0}), seed=3)
    other.load_state_dict(model.state_dict())
    assert fingerprint(other) != fingerprint(model)


def test_passes_are_filled_longest_first() -> None:
    sizes: list[tuple[int, int]] = []

    def work(rows: list[int]) -> list[int]:
        sizes.append((len(rows), max(rows)))
        return [-row for row in rows]

    lengths = [10] * 2000 + [MOST_TOKENS * 2, 512]
    assert sorted(Batches("auto", 256).run(lengths, int, work)) == sorted((n, -n) for n in lengths)
    assert [longest for _, longest in sizes] == sorted((longest for _, longest in sizes), reverse=True)
    assert all(rows == 1 or rows * longest <= MOST_TOKENS for rows, longest in sizes)
    assert len(sizes) < 6


def test_what_does_not_fit_is_halved_and_a_given_number_is_not() -> None:
    def work(rows: list[int]) -> list[int]:
        if len(rows) > 3:
            raise torch.OutOfMemoryError("too many")
        return rows

    assert list(Batches("auto", 256).run([8] * 20, int, work)) == [(8, 8)] * 20
    with pytest.raises(torch.OutOfMemoryError):
        list(Batches(4, 256).run([8] * 20, int, work))
    with pytest.raises(torch.OutOfMemoryError):
        list(Batches("auto", 256).run([8], int, lambda rows: work(rows * 4)))
