"""Choosing tokens: against transformers' processors, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.decode import Sampling, Stop

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_k": 1000},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "repetition_penalty": 0.7},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 0.5, "top_k": 3, "top_p": 0.8, "min_p": 0.3, "repetition_penalty": 2.0},
]


def theirs(temperature: float, **settings: Any) -> LogitsProcessorList:
    """Logits processors of transformers in the order in which its `generate` applies them."""
    found = LogitsProcessorList()
    if "repetition_penalty" in settings:
        found.append(RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    found.append(TemperatureLogitsWarper(temperature))
    for name, kind in (("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper), ("min_p", MinPLogitsWarper)):
        if name in settings:
            found.append(kind(settings[name]))
    return found


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_are_processed_as_transformers_does(settings: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    for scale in (0.5, 2.0, 8.0):
        logits = scale * torch.randn(16, 101, generator=generator)
        text = torch.randint(0, 101, (16, 23), generator=generator)
        ours = Sampling(**settings).processed(logits, text)
        expected = theirs(**settings)(text, logits.clone())
        assert torch.equal(ours.isinf(), expected.isinf())
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)


def test_padding_is_no_text_to_be_repeated() -> None:
    sampling = Sampling(temperature=1.0, repetition_penalty=2.0)
    logits, text = torch.ones(2, 5), torch.tensor([[4, 1, 2], [4, 4, 2]])
    found = sampling.processed(logits, text, torch.tensor([0, 2]))
    assert found.tolist() == [[1, 0.5, 0.5, 1, 0.5], [1, 1, 0.5, 1, 1]]


def test_greedy_is_the_likeliest_after_the_penalty() -> None:
    logits, text = torch.tensor([[3.0, 2.0, -1.0]]), torch.tensor([[0]])
    assert Sampling().choose(logits, text).tolist() == [[0]]
    penalised = Sampling(repetition_penalty=2.0)
    assert penalised.choose(logits, text).tolist() == [[1]]
    assert penalised.probabilities(logits, text).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    "settings", [{"top_p": 1.5}, {"min_p": -0.1}, {"top_k": 0}, {"temperature": -1.0}, {"topp": 1}]
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    model, prompts = model_and_prompts()
    with pytest.raises(zoo.SpecError, match=next(iter(settings))):
        zoo.generate(model, prompts, 2, **settings)


def model_and_prompts() -> tuple[zoo.Decoder, torch.Tensor]:
    spec = zoo.load("small", d_model=24, n_layers=2, vocab_size=12)
    return random_model(spec).double(), random_tokens(spec, 3, 7)


def test_greedy_generation_is_the_uncached_loop() -> None:
    model, prompts = model_and_prompts()
    text = prompts
    for _ in range(9):
        text = torch.cat((text, model(text)[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(zoo.generate(model, prompts, 9), text[:, 7:])


@pytest.mark.parametrize("kind", ["attention", "gated_deltanet", "ttt", "mamba2"])
def test_a_model_that_has_generated_can_be_trained(kind: str) -> None:
    """Tensors made while generating have no gradients; none stays in the model, or is what is returned."""
    model = random_model(
        zoo.load("small", d_model=16, n_layers=1, vocab_size=19, **{"block.mixer": {"kind": kind, "heads": 2}})
    )
    written = zoo.generate(model.eval(), random_tokens(model.spec, 2, 7), 3)
    assert not written.is_inference()
    model.train()(written).logsumexp(-1).sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def test_prompts_of_unlike_lengths_are_continued_as_each_alone() -> None:
    model, prompts = model_and_prompts()
    pads = [0, 4, 2]
    settings = {"repetition_penalty": 1.5}
    together = zoo.generate(model, prompts, 8, left_pad=torch.tensor(pads), **settings)
    for row, pad in enumerate(pads):
        alone = zoo.generate(model, prompts[row : row + 1, pad:], 8, **settings)
        assert torch.equal(together[row : row + 1], alone)


def test_rows_end_after_their_stop_sequence() -> None:
    model, prompts = model_and_prompts()
    whole = zoo.generate(model, prompts, 12).tolist()
    stop = [whole[0][3:5], [whole[1][6]]]
    found = zoo.generate(model, prompts, 12, stop=Stop(stop, -1)).tolist()
    expected = [until(row, stop) for row in whole]
    longest = max(map(len, expected))
    assert found == [row + [-1] * (longest - len(row)) for row in expected]
    assert min(map(len, expected)) < longest


def until(row: list[int], stop: list[list[int]]) -> list[int]:
    for end in range(1, len(row) + 1):
        if any(row[:end][-len(s) :] == s for s in stop):
            return row[:end]
    return row


def test_an_empty_stop_sequence_is_refused() -> None:
    model, prompts = model_and_prompts()
    with pytest.raises(ValueError, match="stop sequence is empty"):
        zoo.generate(model, prompts, 2, stop=Stop([[]]))
