"""Beam search: against transformers' `generate` on the same weights, and against all continuations there are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import zoo
from tests.zoo.hf.parity import draw, hf_model
from zoo.conformance.combinations import random_model, random_tokens
from zoo.decode import Stop, beam_search

SETTINGS: list[dict[str, Any]] = [
    {"beams": 4},
    {"beams": 3, "length_penalty": 0.0, "early_stopping": "never"},
    {"beams": 4, "length_penalty": 2.0, "early_stopping": "never"},
    {"beams": 4, "length_penalty": -1.0},
    {"beams": 2, "early_stopping": True},
    {"beams": 5, "length_penalty": 0.6, "early_stopping": True},
]
NEW, LENGTH = 10, 6


def transformers_beams(model: Any, prompts: torch.Tensor, beams: int, eos: list[int], **settings: Any) -> Any:
    return model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=eos,
        pad_token_id=eos[0],
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )


FAMILIES = ["llama", "gpt2", "gemma2", "mistral", "mamba2"]
CASES = [
    # How beams are scored is no matter of the family, whose cache follows them whatever the scores.
    pytest.param(family, settings, id=f"{settings}-{family}", marks=[] if settled else [pytest.mark.slow])
    for number, settings in enumerate(SETTINGS)
    for place, family in enumerate(FAMILIES)
    for settled in [family == "llama" or (number + place) % len(FAMILIES) == 0]
]


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_beams_are_those_of_transformers(family: str, settings: dict[str, Any]) -> None:
    theirs = hf_model(draw(family, 0)).float()
    ours = zoo.from_hf(theirs)
    prompts = random_tokens(ours.spec, 3, LENGTH)
    # Tokens that are likely: rows end at unlike lengths, and some not at all.
    likely = zoo.generate(ours, prompts, NEW)
    eos = [int(likely[0, 4]), int(likely[1, 7])]
    # Gemma's cache of a window shorter than the prompt loses tokens in transformers, and Mamba-2 says other things with
    # its cache than without: their scores are then not their own.
    expected = transformers_beams(theirs, prompts, eos=eos, use_cache=family not in ("gemma2", "mamba2"), **settings)
    found = beam_search(ours, prompts, NEW, stop=Stop([[token] for token in eos], eos[0]), **settings)
    texts = expected.sequences[:, LENGTH:].view(3, settings["beams"], -1)
    assert torch.equal(found.tokens[:, :, : texts.shape[2]], texts)
    assert (found.tokens[:, :, texts.shape[2] :] == eos[0]).all()
    torch.testing.assert_close(found.scores.flatten(), expected.sequences_scores, rtol=1e-4, atol=1e-4)


def small_model() -> zoo.Decoder:
    return random_model(zoo.load("small", d_model=24, n_layers=2, vocab_size=4, **{"block.mixer.window": 3})).double()


def test_enough_beams_find_the_likeliest_continuation_of_all() -> None:
    """Four tokens have 4³ = 64 continuations; those that stop early are as many texts fewer."""
    model = small_model()
    prompt = random_tokens(model.spec, 1, 5)
    found = beam_search(model, prompt, 3, beams=64, length_penalty=0.0, early_stopping="never", stop=Stop([[0]]))
    scores = {}
    for text in itertools.product(range(4), repeat=3):
        kept = text[: text.index(0) + 1] if 0 in text else text
        log_p = model(torch.cat((prompt, torch.tensor([text])), dim=1)).log_softmax(-1)[0, 4:].detach()
        scores[kept] = sum(float(log_p[i, token]) for i, token in enumerate(kept))
    best = sorted(scores.items(), key=lambda item: -item[1])
    for i, (text, score) in enumerate(best):
        assert found.tokens[0, i].tolist() == list(text) + [0] * (3 - len(text))
        assert float(found.scores[0, i]) == pytest.approx(score, abs=1e-4)
    assert found.scores[0, len(best) :].isinf().all()


def test_one_beam_is_greedy_and_padding_changes_nothing() -> None:
    model, pads = small_model(), [0, 2, 4]
    prompts = random_tokens(model.spec, 3, 7)
    greedy = zoo.generate(model, prompts, 8)
    assert torch.equal(beam_search(model, prompts, 8, beams=1).tokens[:, 0], greedy)
    together = beam_search(model, prompts, 6, beams=3, left_pad=torch.tensor(pads))
    for row, pad in enumerate(pads):
        alone = beam_search(model, prompts[row : row + 1, pad:], 6, beams=3)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0])
