"""Train and the three held-out parts are split by document, and no text is in two of them."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from ablate.data import Corpus, DataError, identify, parse, prepare
from ablate.data.splitting import FEWEST_DOCUMENTS, PIECE_BYTES, SHARES


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


def all_held_out(corpus: Corpus) -> list[str]:
    return [text for part in SHARES for text in corpus.held_out(part)]


def size_of(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def test_each_document_is_in_one_split(tmp_path: Path, texts: list[str]) -> None:
    corpus = corpus_of(tmp_path, [*texts, texts[3], "", texts[7]], validation_fraction=0.2)
    parts = {part: decoded(corpus, part) for part in SHARES}
    assert sorted([*decoded(corpus, "train"), *parts["tuning"], *parts["judging"], *parts["test"]]) == sorted(texts)
    assert all(corpus.held_out(part) == found for part, found in parts.items())
    whole, largest = size_of(texts), max(len(text.encode()) for text in texts)
    assert 0.2 <= size_of(all_held_out(corpus)) / whole < 0.2 + largest / whole
    for part, share in {"tuning": 1 / 4, "judging": 1 / 4, "test": 1 / 2}.items():
        assert abs(size_of(parts[part]) - share * size_of(all_held_out(corpus))) <= largest


def test_a_larger_share_moves_no_document_to_another_part(tmp_path: Path, texts: list[str]) -> None:
    small, large = (corpus_of(tmp_path, texts, validation_fraction=share) for share in (0.2, 0.5))
    for part in SHARES:
        assert set(small.held_out(part)) < set(large.held_out(part))


def test_each_part_has_a_document_however_small_the_share(tmp_path: Path, texts: list[str]) -> None:
    corpus = corpus_of(tmp_path, texts, validation_fraction=1e-6)
    assert [len(corpus.held_out(part)) for part in SHARES] == [1, 1, 1]


def test_which_documents_are_held_out_does_not_depend_on_their_order(tmp_path: Path, texts: list[str]) -> None:
    shuffled = random.Random(1).sample(texts, len(texts))
    one, other = (corpus_of(tmp_path, t) for t in (texts, shuffled))
    assert one.digest != other.digest
    assert all(set(one.held_out(part)) == set(other.held_out(part)) for part in SHARES)


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
    pieces = [*decoded(corpus, "train"), *all_held_out(corpus)]
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
    held_out = written(tmp_path / "held_out.jsonl", ["never seen", texts[5], "nor this"])
    corpus = corpus_of(tmp_path, texts, validation_paths=str(held_out))
    assert sorted(all_held_out(corpus)) == sorted(["never seen", texts[5], "nor this"])
    assert decoded(corpus, "train") == [text for text in texts if text != texts[5]]
    assert corpus.digest != corpus_of(tmp_path, texts).digest


def test_one_validation_file_is_cut_and_still_not_trained_on(tmp_path: Path, texts: list[str]) -> None:
    held_out = "".join(f"held-out line {n}\n" for n in range(100))
    path = written(tmp_path / "held_out.jsonl", [held_out])
    corpus = corpus_of(tmp_path, [*texts, held_out], validation_paths=str(path))
    assert decoded(corpus, "train") == texts
    assert corpus.meta.unit == "piece"
    assert "".join(sorted(all_held_out(corpus), key=held_out.index)) == held_out
    assert all(corpus.held_out(part) for part in SHARES)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", ["a single line"])
    nothing = written(tmp_path / "nothing.jsonl", [""])
    two = written(tmp_path / "two.jsonl", ["one line", "and another"])
    cases = {
        "no text is left to train on": {"paths": str(path)},
        "the data has no text": {"paths": str(nothing)},
        "validation_paths has no text": {"paths": str(path), "validation_paths": str(nothing)},
        "and all that are also in validation_paths": {"paths": str(path), "validation_paths": str(path)},
        "validation_paths has 2 documents, but test, judging, tuning need one each": {
            "paths": str(path),
            "validation_paths": str(two),
        },
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


@pytest.mark.slow
def test_real_books_are_split_by_book(real_text: Path, tmp_path: Path) -> None:
    path = real_text / "books" / "train-00-of-04.parquet"
    corpus = prepare(parse({"source": "files", "paths": str(path)}), tmp_path)
    assert corpus.meta.unit == "document"
    assert corpus.meta.documents.total == 56
    assert not set(all_held_out(corpus)) & set(decoded(corpus, "train"))


def test_a_document_larger_than_the_parts_is_cut(tmp_path: Path, texts: list[str]) -> None:
    large = "".join(f"sentence {i} of a log. " for i in range(100_000))
    corpus = corpus_of(tmp_path, [*texts, large])
    found = [*decoded(corpus, "train"), *all_held_out(corpus)]
    assert corpus.meta.unit == "piece"
    assert set(texts) < set(found)  # the others stay whole
    cut = [text for text in found if text not in texts]
    assert "".join(sorted(cut, key=large.index)) == large
    assert all(text.endswith(". ") for text in cut)
    held_out = size_of(all_held_out(corpus)) / size_of(found)
    assert 0.05 <= held_out < 0.05 + 3 * max(map(len, cut)) / size_of(found)


@pytest.mark.parametrize("end", ["", " ", "\r", "。", "日"])
def test_one_line_is_cut_where_it_can_be(end: str, tmp_path: Path) -> None:
    text = end.join(str(number) for number in range(100_000))
    corpus = corpus_of(tmp_path, [text])
    found = [*decoded(corpus, "train"), *all_held_out(corpus)]
    assert "".join(sorted(found, key=text.index)) == text
    assert max(len(each.encode()) for each in found) <= PIECE_BYTES
    assert 0.05 <= size_of(all_held_out(corpus)) / size_of([text]) < 0.08


def test_one_validation_line_is_cut(tmp_path: Path, texts: list[str]) -> None:
    held_out = " ".join(map(str, range(2000)))
    path = written(tmp_path / "held_out.jsonl", [held_out])
    corpus = corpus_of(tmp_path, texts, validation_paths=str(path))
    assert "".join(sorted(all_held_out(corpus), key=held_out.index)) == held_out
    assert decoded(corpus, "train") == texts
