"""Tokenizers lose nothing, repeat themselves, and know the bytes behind each token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from ablate.data import DataError, identify, parse, prepare
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS, Encoder, bytes_by_offset
from ablate.data.tokenizers.bytes import byte_tokenizer

SAVED_BYTES = Tokenizer.from_str(byte_tokenizer().to_str())
AWKWARD = f"naïve {EOS} 日本語\r\n\t 🙂 \x00 end"


def spec_of(tokenizer: object) -> TokenizerSpec:
    return parse({"source": "stdlib", "tokenizer": tokenizer}).tokenizer


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_saved_bytes_encode_and_decode_as_bytes_do(text: str) -> None:
    utf8 = text.encode()
    fast = next(spec_of("bytes").encoder([], Path()).encode([utf8])).tolist()
    assert fast == list(utf8) == SAVED_BYTES.encode(text).ids
    assert SAVED_BYTES.decode(fast) == text


@pytest.mark.filterwarnings("ignore")
def test_an_expression_without_end_is_one_line(tmp_path: Path) -> None:
    """The library panics when the expression has been tried for long enough."""
    content = json.loads(byte_tokenizer().to_str())
    for expression in (r"(\w+\s?)+[^\w\s]", r"(a+)+$"):
        split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        (tmp_path / "tokenizer.json").write_text(json.dumps({**content, "pre_tokenizer": split}))
        lines = ("a" * 60 + "!! ", "words " * 60)
        (tmp_path / "text.txt").write_text("\n".join(f"{lines[n % 2]}{n}" for n in range(90)))
        tokenizer = {"kind": "file", "path": "tokenizer.json"}
        spec = parse({"source": "files", "paths": "text.txt", "tokenizer": tokenizer, "validation_tokens": 256})
        with pytest.raises(DataError, match=r"^tokenizer\.json cannot encode the text: ") as raised:
            prepare(spec, tmp_path / "data", tmp_path)
        assert "\n" not in str(raised.value)
        assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


@given(st.binary())
def test_saved_bytes_decode_what_is_no_text_as_python_does(content: bytes) -> None:
    assert SAVED_BYTES.decode(list(content)) == content.decode(errors="replace")


def test_end_of_text_cannot_be_spelt(texts: list[str]) -> None:
    for kind in ("bytes", {"kind": "bpe", "vocab_size": 300}):
        encoder = spec_of(kind).encoder([*texts, EOS * 50], Path())
        saved = Tokenizer.from_str(encoder.tokenizer.to_str())
        assert encoder.eos == saved.token_to_id(EOS)
        assert encoder.eos not in saved.encode(EOS + AWKWARD).ids
        assert encoder.eos not in next(encoder.encode([EOS.encode()]))


def test_bpe_repeats_itself_in_another_process(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(texts))
    program = """
import sys
from pathlib import Path
from ablate.data.tokenizers.bpe import train
print(train(Path(sys.argv[1]).read_text().split("\\n"), 500).to_str())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path / "text")]
    trained = {
        subprocess.run(
            command, env={**environment, "RAYON_NUM_THREADS": threads}, capture_output=True, text=True, check=True
        ).stdout
        for threads in ("1", "2")
    }
    assert len(trained) == 1


def test_bpe_loses_nothing_and_keeps_to_its_size(texts: list[str]) -> None:
    encoder = spec_of({"kind": "bpe", "vocab_size": 300}).encoder(texts, Path())
    assert encoder.tokenizer.get_vocab_size() == 300
    for text in [*texts, AWKWARD]:
        assert encoder.tokenizer.decode(next(encoder.encode([text.encode()])).tolist()) == text


def test_a_small_corpus_leaves_the_vocabulary_as_asked() -> None:
    spec = spec_of({"kind": "bpe", "vocab_size": 4096})
    assert spec.encoder(["tiny"], Path()).tokenizer.get_vocab_size() < 300
    assert spec.vocabulary(Path()) == 4096


def word_piece(texts: list[str]) -> Tokenizer:
    """Lower-cases, drops spaces, marks continuations: nothing of the text's bytes is in its tokens."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def metaspace(texts: list[str]) -> Tokenizer:
    """A tokenizer like SentencePiece's: a space before the text, and `</s>`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "</s>"], show_progress=False)
    )
    return tokenizer


def byte_level(texts: list[str]) -> Tokenizer:
    """A tokenizer like GPT-2's, with an end of text that text can spell, added at both ends, and cut off at 8
    tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{EOS} $A {EOS}", special_tokens=[(EOS, 0)])
    tokenizer.enable_truncation(8)
    return tokenizer


FOREIGN = {"word_piece": word_piece, "metaspace": metaspace, "byte_level": byte_level}


@pytest.mark.parametrize("name", FOREIGN)
def test_bytes_behind_tokens_sum_to_the_text(name: str, texts: list[str], tmp_path: Path) -> None:
    FOREIGN[name](texts).save(str(tmp_path / "tokenizer.json"))
    encoder = spec_of({"kind": "file", "path": "tokenizer.json"}).encoder([], tmp_path)
    documents = [text.encode() for text in [*texts, AWKWARD]]
    for utf8, (ids, sizes) in zip(documents, encoder.encode_with_bytes(documents), strict=True):
        assert len(ids) == len(sizes)
        assert sizes.sum() == len(utf8)
        assert encoder.eos not in ids


@pytest.mark.parametrize("kind", ["bytes", {"kind": "bpe", "vocab_size": 300}])
def test_bytes_behind_byte_level_tokens_are_those_they_decode_to(kind: object, texts: list[str]) -> None:
    encoder = spec_of(kind).encoder(texts, Path())
    whole = encoder.tokenizer.decode
    for text in texts[:10]:
        ids, sizes = next(encoder.encode_with_bytes([text.encode()]))
        for i in np.flatnonzero(np.cumsum(sizes)):
            start = whole(ids[: i + 1].tolist())
            if "\ufffd" not in start:  # up to a whole character
                assert len(start.encode()) == sizes[: i + 1].sum()


def test_a_token_owns_the_text_since_the_one_before() -> None:
    text = "né  tout 🙂 "
    offsets = [(0, 2), (4, 6), (6, 8), (9, 10), (9, 10)]
    assert bytes_by_offset(text, offsets).tolist() == [3, 4, 2, 5, 1]
    assert bytes_by_offset("", []).tolist() == []


def test_a_tokenizer_file_is_known_by_its_content(texts: list[str], tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        metaspace(texts).save(str(tmp_path / name))
    (tmp_path / "c.json").write_text(Path(tmp_path / "a.json").read_text().replace("</s>", "<end>"))

    def digest(path: str, **extra: str) -> str:
        spec = {"source": "stdlib", "tokenizer": {"kind": "file", "path": path, **extra}}
        return identify(parse(spec), tmp_path).digest

    assert digest("a.json") == digest("b.json") == digest("a.json", eos="</s>")
    assert digest("a.json") != digest("c.json", eos="<end>")
    with pytest.raises(DataError, match="none of the tokens"):
        digest("c.json")
    with pytest.raises(DataError, match="no token <nope>"):
        digest("a.json", eos="<nope>")
    with pytest.raises(DataError, match="cannot read"):
        digest("missing.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match=r"is not a tokenizer.json"):
        digest("bad.json")


def test_vocabulary_counts_to_the_largest_id(texts: list[str], tmp_path: Path) -> None:
    tokenizer = metaspace(texts)
    tokenizer.add_special_tokens(["<pad>"])
    tokenizer.save(str(tmp_path / "t.json"))
    spec = spec_of({"kind": "file", "path": "t.json"})
    assert spec.vocabulary(tmp_path) == tokenizer.token_to_id("<pad>") + 1
    assert isinstance(spec.encoder([], tmp_path), Encoder)
