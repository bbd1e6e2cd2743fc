"""Batched generation over the cache against a loop that reads the whole text again for every token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.utils import normalize_gen_kwargs
from tokenizers import Tokenizer

from evals.evaluations._decoding import Generation, GenerationRequest, UnsupportedGenerationError
from evals.harness.lm import ZooLM
from tests.evals.bytelevel import EOS
from zoo.model import Decoder

PROMPTS = ["The quick brown", "a", "", "import os\nimport sys", "ünïcödé"]
CONTEXT = 64


def generate(model: Decoder, tokenizer: Tokenizer, prompts: list[str], batch: int = 8, **settings: Any) -> list[str]:
    lm = ZooLM(model, tokenizer, eos=EOS, context=CONTEXT, batch=batch, seed=settings.pop("seed", 0))
    settings = {"max_gen_toks": 12, "until": []} | settings
    asked = [Instance("generate_until", {}, (p, dict(settings)), i) for i, p in enumerate(prompts)]
    return lm.generate_until(asked)


def plain_greedy(model: Decoder, prompt: str, new: int) -> list[int]:
    tokens = list(prompt.encode()) or [EOS]
    start = len(tokens)
    with torch.inference_mode():
        for _ in range(new):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[start:]


def test_greedy_equals_the_uncached_loop_for_unequal_prompts(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    found = generate(model, byte_tokenizer, PROMPTS)
    for prompt, text in zip(PROMPTS, found, strict=True):
        tokens = plain_greedy(model, prompt, 12)
        tokens = tokens[: tokens.index(EOS)] if EOS in tokens else tokens
        assert text == byte_tokenizer.decode(tokens)


def test_a_stop_sequence_ends_the_text_and_is_cut_off(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    (whole,) = generate(model, byte_tokenizer, PROMPTS[:1])
    stop = whole[3:5]
    assert generate(model, byte_tokenizer, PROMPTS[:1], until=["never there", stop]) == [whole[: whole.find(stop)]]
    assert generate(model, byte_tokenizer, PROMPTS[:1], until=stop) == [whole[: whole.find(stop)]]


@pytest.mark.parametrize("name", ["max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"])
def test_every_name_of_lm_eval_for_the_new_tokens_counts(name: str) -> None:
    given = {name: 5, "max_completion_tokens": 7} if name != "max_completion_tokens" else {name: 5}
    assert GenerationRequest.parse(0, [1], given, CONTEXT).max_new == normalize_gen_kwargs(given)["max_gen_toks"] == 5


@pytest.mark.parametrize("do_sample", [None, True, False])
@pytest.mark.parametrize("temperature", [None, 0.0, 0.7])
def test_text_is_sampled_where_lm_eval_samples_it(do_sample: bool | None, temperature: float | None) -> None:
    given = {"do_sample": do_sample} | ({} if temperature is None else {"temperature": temperature})
    theirs = normalize_gen_kwargs(given)
    drawn = theirs["do_sample"] and theirs.get("temperature", 1.0)
    assert GenerationRequest.parse(0, [1], given, CONTEXT).sampling.temperature == drawn


UNUSABLE: dict[str, list[object]] = {
    "max_gen_toks": ["x", "5.0", [], float("inf"), float("nan"), -1],
    "temperature": ["0.7", -1, float("nan"), []],
    "do_sample": ["false", []],
    "until": [1, [1], {"a": 1}, b"x", [["a"]]],
    "top_k": [-1, 2.5, "5", 10**30],
    "top_p": [1.5, "0.5", {}],
    "min_p": [2],
    "repetition_penalty": [0, "2"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in UNUSABLE.items() for value in values])
def test_a_value_that_cannot_be_used_is_one_line(name: str, value: object) -> None:
    """It is the task's mistake: the other tasks go on."""
    given = {"do_sample": True, name: value}
    with pytest.raises(UnsupportedGenerationError, match="its generation settings cannot be used: ") as caught:
        GenerationRequest.parse(0, [1], given, CONTEXT)
    assert "\n" not in str(caught.value)


def test_a_prompt_that_is_too_long_loses_its_beginning() -> None:
    request = GenerationRequest.parse(0, list(range(100)), {"max_gen_toks": 12}, CONTEXT)
    assert request.prompt == list(range(100))[-(CONTEXT - 12) :]


@pytest.mark.parametrize(("length", "read", "new"), [(100, CONTEXT // 2, CONTEXT // 2), (5, 5, CONTEXT - 5)])
@pytest.mark.parametrize("settings", [{}, {"max_gen_toks": CONTEXT}])
def test_a_prompt_is_read_where_a_task_asks_for_as_many_new_tokens_as_the_context_has(
    length: int, read: int, new: int, settings: dict[str, int]
) -> None:
    """lm-eval's default is 256 of them, and small models are often trained on no more."""
    request = GenerationRequest.parse(0, list(range(length)), settings, CONTEXT)
    assert (request.prompt, request.max_new) == (list(range(length))[-read:], new)


def test_samples_depend_on_the_seed_and_not_on_the_batch(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    hot = {"do_sample": True, "temperature": 1.0}
    together = generate(model, byte_tokenizer, PROMPTS, **hot)
    assert together == generate(model, byte_tokenizer, PROMPTS, batch=1, **hot)
    assert together != generate(model, byte_tokenizer, PROMPTS, seed=1, **hot)
    assert together != generate(model, byte_tokenizer, PROMPTS)


def test_sampling_follows_softmax_of_scaled_logits() -> None:
    row = Generation(GenerationRequest.parse(0, [1], {"do_sample": True, "temperature": 2.0}, CONTEXT), seed=0)
    logits = torch.tensor([2.0, 0.0, -2.0])
    drawn = torch.tensor([row.choose(logits) for _ in range(4000)]).bincount(minlength=3) / 4000
    weights = torch.exp(logits / 2)
    assert drawn.tolist() == pytest.approx((weights / weights.sum()).tolist(), abs=0.025)


@pytest.mark.parametrize(
    ("settings", "allowed"), [({"top_k": 2}, {0, 3}), ({"top_p": 0.5}, {3}), ({"top_p": 0.9}, {0, 3})]
)
def test_truncated_sampling_draws_only_from_the_likeliest(settings: dict[str, Any], allowed: set[int]) -> None:
    """Probabilities 0.3, 0.04, 0.06, 0.6."""
    row = Generation(
        GenerationRequest.parse(0, [1], {"do_sample": True, "temperature": 1.0, **settings}, CONTEXT), seed=0
    )
    logits = torch.log(torch.tensor([0.3, 0.04, 0.06, 0.6]))
    assert {row.choose(logits) for _ in range(200)} == allowed


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="num_beams"):
        GenerationRequest.parse(0, [1], {"num_beams": 4}, CONTEXT)
