"""`ablate export`: what transformers opens is what was trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import zoo
from ablate.cli import main
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.store import Store, write_text
from ablate.store.documents import RunData
from ablate.training.trained import keep_trained
from tests.documents import result_of, run_of

DIGEST = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One finished run of a model of 257 tokens, without its corpus."""
    return with_run(Store(tmp_path / "runs"), {})


def with_run(store: Store, edits: dict[str, object]) -> Store:
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=257, **edits)
    tokenizer = store.root / "tokenizer.json"
    write_text(tokenizer, byte_tokenizer().to_str())
    keep_trained(store, DIGEST, zoo.build(spec, seed=1), tokenizer)
    store.write_run(run_of(DIGEST, data=RunData(digest="gone")))
    store.write_result(result_of(DIGEST))
    return store


def test_logits_and_tokens_are_the_same(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "hf"
    assert main(["export", DIGEST[:6], str(folder), "--store", str(store.root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == DIGEST
    theirs, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = words("naïve text")["input_ids"]
    assert ids == byte_tokenizer().encode("naïve text").ids
    assert (words.eos_token_id, theirs.config.eos_token_id) == (256, 256)
    tokens = torch.tensor([ids])
    ours = zoo.open(store.model_dir(DIGEST))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-5)


def test_what_transformers_lacks_is_one_line(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_run(store, {"block.norm": "dyt"})
    assert main(["export", DIGEST, str(tmp_path / "hf"), "--store", str(store.root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ablate: {DIGEST}: ") and "norm" in line
    assert not (tmp_path / "hf").exists()


def test_nothing_is_overwritten(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["export", DIGEST, str(tmp_path), "--store", str(store.root)]) == 2
    assert "is not empty" in capsys.readouterr().err
