"""Train and validation are split by document, and no text is in both."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from ablate.data import Corpus, DataError, identify, parse, prepare
from ablate.data.splitting import FEWEST_DOCUMENTS, PIECE_BYTES


def decoded(corpus: Corpus, split: str) -> list[str]:
    """The documents of a split, from the tokens of a byte corpus and their offsets."""
    tokens, offsets = corpus.tokens(split), corpus.document_offsets(split)
    return [bytes(tokens[a : b - 1].tolist()).decode() for a, b in pairwise(offsets)]


def written(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def corpus_of(tmp_path: Path, documents: list[str], **spec: object) -> Corpus:
    path = written(tmp_path / "a.jsonl", documents)
    return prepare(parse({"source": "files", "paths": str(path), **spec}), tmp_path / "data")


def test_each_document_is_in_one_split(tmp_path: Path, texts: list[str]) -> None:
    corpus = corpus_of(tmp_path, [*texts, texts[3], "", texts[7]], validation_fraction=0.2)
    train, validation = decoded(corpus, "train"), decoded(corpus, "validation")
    assert sorted(train + validation) == sorted(texts)
    assert corpus.held_out() == validation
    share = sum(len(text.encode()) for text in validation) / sum(len(text.encode()) for text in texts)
    assert 0.2 <= share < 0.2 + max(len(text.encode()) for text in texts) / sum(len(t.encode()) for t in texts)


def test_which_documents_are_held_out_does_not_depend_on_their_order(tmp_path: Path, texts: list[str]) -> None:
    shuffled = random.Random(1).sample(texts, len(texts))
    one, other = (corpus_of(tmp_path, t) for t in (texts, shuffled))
    assert one.digest != other.digest
    assert set(one.held_out()) == set(other.held_out())


def test_boundaries_are_kept_as_end_of_text(tmp_path: Path, texts: list[str]) -> None:
    corpus = corpus_of(tmp_path, texts)
    tokens = corpus.tokens("train")
    offsets = corpus.document_offsets("train")
    boundaries = [i for i, token in enumerate(tokens.tolist()) if token == corpus.eos]
    assert boundaries == [0, *(offsets[1:] - 1).tolist()]
    assert len(tokens) == corpus.train_tokens == corpus.meta.tokens.train


def test_one_long_text_is_cut_at_line_ends(tmp_path: Path) -> None:
    text = "".join(f"line {i} of a play\n" for i in range(20_000)) + "the end"
    (tmp_path / "play.txt").write_text(text)
    corpus = prepare(parse({"source": "files", "paths": str(tmp_path / "play.txt")}), tmp_path / "data")
    pieces = decoded(corpus, "train") + decoded(corpus, "validation")
    assert corpus.meta.unit == "piece"
    assert "".join(sorted(pieces, key=text.index)) == text
    assert sum(len(p) < PIECE_BYTES for p in pieces) <= 1
    assert max(map(len, pieces)) < PIECE_BYTES + 100
    assert all(p.endswith("\n") for p in pieces if p != pieces[-1] and not p.endswith("the end"))


@pytest.mark.parametrize("count", [FEWEST_DOCUMENTS - 1, FEWEST_DOCUMENTS])
def test_only_too_few_documents_are_cut(count: int, tmp_path: Path) -> None:
    long = [f"{i}\n" * 3000 for i in range(count)]
    unit = corpus_of(tmp_path, long).meta.unit
    assert unit == ("piece" if count < FEWEST_DOCUMENTS else "document")


def test_given_validation_files_are_all_that_is_held_out(tmp_path: Path, texts: list[str]) -> None:
    held_out = written(tmp_path / "held_out.jsonl", ["never seen", texts[5]])
    corpus = corpus_of(tmp_path, texts, validation_paths=str(held_out))
    assert corpus.held_out() == ["never seen", texts[5]]
    assert decoded(corpus, "train") == [text for text in texts if text != texts[5]]
    assert corpus.digest != corpus_of(tmp_path, texts).digest


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", ["a single line"])
    nothing = written(tmp_path / "nothing.jsonl", [""])
    cases = {
        "no text is left to train on": {"paths": str(path)},
        "the data has no text": {"paths": str(nothing)},
        "validation_paths has no text": {"paths": str(path), "validation_paths": str(nothing)},
        "is also in validation_paths": {"paths": str(path), "validation_paths": str(path)},
    }
    for reason, spec in cases.items():
        with pytest.raises(DataError, match=reason):
            identify(parse({"source": "files", **spec}))


def test_the_digest_is_that_of_content_tokenizer_and_split(tmp_path: Path, texts: list[str]) -> None:
    one = written(tmp_path / "one.jsonl", texts)
    (tmp_path / "other").mkdir()
    same = written(tmp_path / "other" / "name.ndjson", texts)
    edited = written(tmp_path / "edited.jsonl", [*texts[:-1], texts[-1] + "!"])

    def digest(path: Path, **spec: object) -> str:
        return identify(parse({"source": "files", "paths": str(path), **spec})).digest

    assert digest(one) == digest(same) == digest(one, tokenizer="bytes")
    different = [
        digest(one),
        digest(edited),
        digest(one, tokenizer="bpe"),
        digest(one, tokenizer={"kind": "bpe", "vocab_size": 300}),
        digest(one, validation_fraction=0.1),
        digest(one, validation_tokens=100),
    ]
    assert len(set(different)) == len(different)


def test_real_books_are_split_by_book(real_text: Path, tmp_path: Path) -> None:
    path = real_text / "books" / "train-00-of-04.parquet"
    corpus = prepare(parse({"source": "files", "paths": str(path)}), tmp_path)
    assert corpus.meta.unit == "document"
    assert corpus.meta.documents.total == 56
    assert not set(corpus.held_out()) & set(decoded(corpus, "train"))
