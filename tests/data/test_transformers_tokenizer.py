"""`vocab.json` with `merges.txt`: the ids that transformers gives, for each class that cuts words in its own way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from ablate.data import DataError
from ablate.wings.starts.checkpoints import Checkpoint
from tests.data.test_formats import tokenizer_of
from tests.evals.bytelevel import byte_level

TEXTS = ["the cat  sat\n\non 12345 mats", "", " the", "naïve €5\t", "don't"]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("1", "2"), ("12", "3")]


@pytest.mark.parametrize(("family", "cls"), [("gpt2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_vocab_and_merges(family: str, cls: str, tmp_path: Path) -> None:
    model = json.loads(byte_level(MERGES).to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    said = dict.fromkeys(("eos_token", "bos_token", "unk_token", "pad_token"), "<eos>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": cls, **said}))
    found: Any = Checkpoint(tmp_path).tokenizer
    assert found == {"kind": "transformers", "path": str(tmp_path), "eos": "<eos>"}
    ours, theirs = tokenizer_of(found).encoder([], Path()), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.eos == theirs.eos_token_id
    for text in TEXTS:
        (ids,) = ours.encode([text.encode()])
        assert ids.tolist() == theirs.encode(text, add_special_tokens=False), text


def test_what_transformers_cannot_read_is_one_line(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path, "transformers cannot read its tokenizer"),
        (tmp_path / "no", "there is no folder"),
    ):
        with pytest.raises(DataError, match=message) as refused:
            tokenizer_of({"kind": "transformers", "path": str(path)}).vocabulary(Path())
        assert len(str(refused.value).splitlines()) == 1
