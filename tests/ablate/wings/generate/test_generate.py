"""`ablate generate`: what the model says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import zoo
from ablate.cli import main
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.training.trained import keep_trained
from store import Store, write_text
from store.documents import RunData
from tests.documents import result_of, run_of

DIGEST = "0123456789abcdef"


def with_run(store: Store, edits: dict[str, object]) -> Store:
    """The store with one finished run of a model of 257 tokens, without its corpus."""
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=257, **edits)
    tokenizer = store.root / "tokenizer.json"
    write_text(tokenizer, byte_tokenizer().to_str())
    keep_trained(store, DIGEST, zoo.build(spec, seed=1), tokenizer)
    store.write_run(run_of(DIGEST, data=RunData(digest="gone")))
    store.write_result(result_of(DIGEST))
    return store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return with_run(Store(tmp_path / "runs"), {"block.mixer.position": {"kind": "learned", "length": 30}})


def test_prompts_are_continued_greedily(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ["def f(", "naïve"]
    arguments = ["generate", DIGEST[:6], "--tokens", "9", "--store", str(store.root), "--json", "--prompt", *prompts]
    assert main(arguments) == 0
    said = json.loads(capsys.readouterr().out)["continuations"]
    model, tokenizer = zoo.open(store.model_dir(DIGEST)), byte_tokenizer()
    for prompt, found in zip(prompts, said, strict=True):
        tokens = zoo.generate(model, torch.tensor([tokenizer.encode(prompt).ids]), 9)[0].tolist()
        tokens = tokens[: tokens.index(256)] if 256 in tokens else tokens
        assert found == {"prompt": prompt, "text": tokenizer.decode(tokens, skip_special_tokens=False)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--top-p", "2"], "--top-p: "),
        (["--tokens", "40"], "prompt and new tokens are 43 tokens, but the model has positions for 30"),
    ],
)
def test_what_cannot_be_is_one_line(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main(["generate", DIGEST, "--prompt", "abc", "--store", str(store.root), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ablate: ") and reason in line


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"encoder": {"n_layers": 1}}, "the model has an encoder, so it cannot continue a prompt"),
        ({"visible": "all"}, "the model is an encoder, so it cannot continue a prompt"),
    ],
)
def test_models_that_do_not_read_on_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edits: dict[str, object], reason: str
) -> None:
    store = with_run(Store(tmp_path / "runs"), edits)
    assert main(["generate", DIGEST, "--prompt", "abc", "--store", str(store.root)]) == 2
    assert reason in capsys.readouterr().err


def test_without_a_tokenizer_there_are_no_prompts(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    keep_trained(store, DIGEST, zoo.build(zoo.load("small", d_model=16, n_layers=2, vocab_size=257)), None)
    assert main(["generate", DIGEST, "--prompt", "abc", "--store", str(store.root)]) == 2
    assert "it has no tokenizer for prompts" in capsys.readouterr().err
