"""The adapter against lm-eval's own adapter of transformers: the same weights, the same requests, the same tasks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import lm_eval.tasks
import pytest
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import AddedToken, Tokenizer

import zoo
from evals.harness.lm import ZooLM
from tests.evals.bytelevel import EOS, byte_level

WINDOW = 48
FAMILIES = ("llama", "gpt_neox", "qwen2", "qwen3", "gemma2", "mistral", "gpt2")
MERGES = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("a", "n"),
    ("a", "t"),
    ("Ġ", "s"),
    ("o", "n"),
    ("Ġ", "c"),
    ("Ġc", "at"),
]
TEXTS = [
    ("The cat", " sat on the mat"),
    ("", "nothing before"),
    ("in the " * 30, "a long context"),
    ("naïve  ", "spaces"),
]
CHOICES = [
    {"query": "the cat is on the", "choices": ["mat", "other side of the sea", "cat"], "answer": 0},
    {"query": "in the beginning, ", "choices": ["there was nothing", "the"], "answer": 1},
    {"query": "one two three", "choices": ["four", "five six", "naïve"], "answer": 0},
]


@cache
def tokenizer() -> Tokenizer:
    found = byte_level(MERGES)
    found.add_special_tokens([AddedToken("<eos>", special=True)])
    return found


@cache
def models(family: str) -> tuple[zoo.Decoder, Any]:
    """Ours and transformers': a small config of the family with random weights, and what it is converted to."""
    config = transformers.CONFIG_MAPPING[family](
        vocab_size=EOS + 1 + len(MERGES),
        **(
            {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
            if family == "gpt2"
            else {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4}
        ),
        **({"num_key_value_heads": 2} if family in ("llama", "qwen2", "qwen3", "gemma2", "mistral") else {}),
        **({"head_dim": 8} if family in ("llama", "qwen3", "gemma2", "mistral") else {}),
        **({"sliding_window": 16} if family in ("gemma2", "mistral") else {}),
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=None,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    ours = zoo.from_hf(theirs)
    return ours, zoo.to_hf(ours, family)


@pytest.fixture(params=FAMILIES)
def pair(request: pytest.FixtureRequest) -> tuple[ZooLM, Any]:
    """Our adapter, and lm-eval's."""
    ours, theirs = models(request.param)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), eos_token="<eos>", pad_token="<eos>", clean_up_tokenization_spaces=False
    )
    reference = HFLM(pretrained=theirs, tokenizer=wrapped, batch_size=2, max_length=WINDOW, device="cpu")
    assert reference.eot_token_id == EOS
    return ZooLM(ours, tokenizer(), eos=EOS, context=WINDOW), reference


def test_requests_are_answered_alike(pair: tuple[ZooLM, Any]) -> None:
    ours, theirs = pair
    asked = [Instance("loglikelihood", {}, arguments, i) for i, arguments in enumerate(TEXTS)]
    for found, expected in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked, disable_tqdm=True), strict=True):
        assert found[0] == pytest.approx(expected[0], abs=1e-4)
        assert found[1] == expected[1]
    whole = [Instance("loglikelihood_rolling", {}, (c * 2 + t,), i) for i, (c, t) in enumerate(TEXTS)]
    expected = theirs.loglikelihood_rolling(whole, disable_tqdm=True)
    assert ours.loglikelihood_rolling(whole) == pytest.approx(expected, abs=1e-4)
    settings = {"until": ["zzz"], "max_gen_toks": 8, "do_sample": False}
    prompts = [Instance("generate_until", {}, (c, dict(settings)), i) for i, (c, _) in enumerate(TEXTS) if c]
    assert ours.generate_until(prompts) == theirs.generate_until(prompts, disable_tqdm=True)


def test_every_item_of_a_task_scores_alike(pair: tuple[ZooLM, Any], tmp_path: Path) -> None:
    """Multiple choice with lengths that count, through the whole of lm-eval."""
    task = {
        "task": "choices",
        "custom_dataset": lambda **_: {"test": lm_eval.api.task.datasets.Dataset.from_list(CHOICES)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{query}}",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    found, expected = (
        lm_eval.simple_evaluate(lm, tasks=[task], bootstrap_iters=0, task_manager=NOTHING) for lm in pair
    )
    for ours, theirs in zip(found["samples"]["choices"], expected["samples"]["choices"], strict=True):
        for mine, other in zip(ours["filtered_resps"], theirs["filtered_resps"], strict=True):
            assert mine[0] == pytest.approx(other[0], abs=1e-4)
            assert mine[1] == other[1]
        assert (ours["acc"], ours["acc_norm"]) == (theirs["acc"], theirs["acc_norm"])


NOTHING = lm_eval.tasks.TaskManager(include_defaults=False)
"""Knows no task by name, and so has nothing to index."""
