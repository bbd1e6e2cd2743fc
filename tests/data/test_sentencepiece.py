"""Models of SentencePiece, as the package itself reads them."""

from __future__ import annotations

import io
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from ablate.data import DataError
from tests.data.test_formats import tokenizer_of

sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece, of the extra test")

SENTENCES = [
    *(
        "hello world",
        "  two  spaces\tand\ttabs\n newline  ",
        "   ",
        "日本語 unknown ﬁ ½ ｆｕｌｌ é",
        "🙂 👨‍👩‍👧",
        "\x00 nul",
    ),
    *("</s> <s> <unk> <0x0A> ▁x", "if x:\n    return [1, 22, 345]\n", "nononono", ""),
]
KINDS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram of bytes": {"model_type": "unigram", "byte_fallback": True, "add_dummy_prefix": False},
    "symbols": {"model_type": "unigram", "user_defined_symbols": ["return", "<sep>"]},
    "newlines": {"model_type": "bpe", "user_defined_symbols": ["\n", "\n\n"], "byte_fallback": True},
    "newlines of unigram": {"model_type": "unigram", "user_defined_symbols": ["\n"], "normalization_rule_name": "nfkc"},
    "bpe": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
    "as of Llama": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
    },
}


def sentencepiece_model(**settings: Any) -> bytes:
    """Trained on this file, in a quarter of a second."""
    out, lines = io.BytesIO(), [line for line in Path(__file__).read_text().splitlines() if line.strip()]
    fixed = {"vocab_size": 420, "character_coverage": 0.999, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, max_sentence_length=200, **fixed, **settings
    )
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    """The ids, and the text of ids, that the package sentencepiece says."""
    content = sentencepiece_model(**KINDS[kind])
    (tmp_path / "own.model").write_bytes(content)
    theirs: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    spec = tokenizer_of({"kind": "sentencepiece", "path": "own.model"})
    ours = spec.encoder([], tmp_path)
    assert (spec.vocabulary(tmp_path), ours.eos) == (theirs.vocab_size(), theirs.eos_id())
    for text in SENTENCES:
        (ids, sizes), *_ = ours.encode_with_bytes([text.encode()])
        assert ids.tolist() == theirs.encode(text), text
        assert sizes.sum() == len(text.encode()) * bool(len(ids))
        if theirs.unk_id() not in ids:  # which sentencepiece decodes to ⁇, a sign that no text has
            assert ours.tokenizer.decode(ids.tolist(), skip_special_tokens=False) == theirs.decode(ids.tolist())


PARTS = [
    *(
        "a",
        "re",
        "return",
        " ",
        "  ",
        "\n",
        "\t",
        "\r",
        "é",
        "ﬁ",
        "½",
        "日本",
        "🙂",
        "1",
        "x",
        "▁",
        "<sep>",
        "</s>",
        "<",
    ),
    *("\u00a0", "\u200b", "\u3000", "e\u0301", "\x00", "\x07", "\ufeff", "\u2028"),
]
AXES: dict[str, list[Any]] = {
    "model_type": ["unigram", "bpe"],
    "normalization_rule_name": ["nmt_nfkc", "nfkc", "identity", "nmt_nfkc_cf"],
    "remove_extra_whitespaces": [True, False],
    "add_dummy_prefix": [True, False],
    "byte_fallback": [True, False],
    "user_defined_symbols": [[], ["\n"], ["return", "<sep>"]],
}


def _drawn(share: float) -> list[dict[str, Any]]:
    draw = random.Random(0)
    every = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]
    return [each for each in every if draw.random() < share]


def _agrees(settings: dict[str, Any], folder: Path) -> None:
    content = sentencepiece_model(**settings)
    (folder / "own.model").write_bytes(content)
    theirs: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    ours = tokenizer_of({"kind": "sentencepiece", "path": "own.model"}).encoder([], folder)
    draw = random.Random(1)
    for _ in range(200):
        text = "".join(draw.choice(PARTS) for _ in range(draw.randint(1, 8)))
        (ids,) = ours.encode([text.encode()])
        assert ids.tolist() == theirs.encode(text), text


@pytest.mark.parametrize("settings", _drawn(0.06), ids=str)
def test_ids_of_generated_models_and_texts(settings: dict[str, Any], tmp_path: Path) -> None:
    _agrees(settings, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("settings", _drawn(1), ids=str)
def test_ids_of_all_generated_models(settings: dict[str, Any], tmp_path: Path) -> None:
    _agrees(settings, tmp_path)


@pytest.mark.parametrize("rule", ["nfkc", "identity"])
@pytest.mark.parametrize("text", ["\nfoo", "\tfoo", "\n\n return\n", " \t\n x\n"])
def test_leading_newlines_and_tabs_are_kept(rule: str, text: str, tmp_path: Path) -> None:
    content = sentencepiece_model(model_type="bpe", normalization_rule_name=rule, byte_fallback=True)
    (tmp_path / "own.model").write_bytes(content)
    theirs: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    (ids,) = tokenizer_of({"kind": "sentencepiece", "path": "own.model"}).encoder([], tmp_path).encode([text.encode()])
    assert ids.tolist() == theirs.encode(text)
    assert "<0x0A>" in [theirs.id_to_piece(index) for index in ids.tolist()] or "\n" not in text


def test_models_of_sentencepiece_that_are_not_converted_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.model"
    spec = tokenizer_of({"kind": "sentencepiece", "path": str(path)})
    with pytest.raises(DataError, match=r"tokenizer\.path: cannot read .*: No such file"):
        spec.vocabulary(tmp_path)
    whole = sentencepiece_model(model_type="bpe")
    for content, message in (
        (b"", "own.model: not a SentencePiece model"),
        (b"{}", "own.model: not a SentencePiece model"),
        (whole[:1000], "own.model: truncated SentencePiece model"),
        (
            sentencepiece_model(model_type="word"),
            "cuts text into words or characters, which cannot be converted: `AutoTokenizer",
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            spec.vocabulary(tmp_path)
