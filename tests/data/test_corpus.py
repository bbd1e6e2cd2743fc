"""Windows: the same for every arm, all of them once per epoch, and bytes counted exactly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ablate.data import Corpus, DataError, open_corpus, parse, prepare
from ablate.data.corpus import Windows, permuted
from ablate.data.splitting import SHARES
from store.documents import HeldOutPart

BPE = {"kind": "bpe", "vocab_size": 300}


def corpus_of(path: Path, root: Path, **spec: object) -> Corpus:
    return prepare(parse({"source": "files", "paths": str(path), **spec}), root)


@pytest.fixture
def corpus(corpus_file: Path, tmp_path: Path) -> Corpus:
    return corpus_of(corpus_file, tmp_path / "data")


@given(size=st.integers(1, 400), key=st.tuples(st.integers(0, 2**32), st.integers(0, 9)))
def test_the_order_is_a_permutation(size: int, key: tuple[int, int]) -> None:
    assert sorted(permuted(np.arange(size, dtype=np.uint64), size, key).tolist()) == list(range(size))


def test_the_order_looks_random() -> None:
    """Each place is as likely for each index, over keys, and neighbours are not kept together."""
    size, keys = 13, 4000
    orders = np.array([permuted(np.arange(size, dtype=np.uint64), size, (k, 0)) for k in range(keys)], dtype=int)
    for i in range(size):
        assert stats.chisquare(np.bincount(orders[:, i], minlength=size)).pvalue > 1e-4
    step = np.bincount((np.diff(orders, axis=1) % size).ravel(), minlength=size)[1:]
    assert stats.chisquare(step).pvalue > 1e-4

    long = permuted(np.arange(100_000, dtype=np.uint64), 100_000, (1, 2)).astype(float)
    assert abs(np.corrcoef(long[:-1], long[1:])[0, 1]) < 0.015
    assert abs(np.corrcoef(long, np.arange(100_000))[0, 1]) < 0.015


def test_batches_depend_on_their_arguments_alone(corpus: Corpus) -> None:
    again = open_corpus(corpus.directory)
    sequence = [corpus.batch(step, batch=3, context=16, seed=7) for step in range(5)]
    for step in (4, 0, 2):
        np.testing.assert_array_equal(again.batch(step, batch=3, context=16, seed=7), sequence[step])
    assert not np.array_equal(corpus.batch(0, batch=3, context=16, seed=8), sequence[0])
    assert sequence[0].dtype == np.int64
    # The n-th window of a run is the same, however windows are grouped into steps.
    np.testing.assert_array_equal(corpus.batch(0, batch=15, context=16, seed=7), np.concatenate(sequence))


def starts_of(rows: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> list[int]:
    """Where each window stands in the corpus, by searching for it."""
    flat, size = tokens.astype("<u2").tobytes(), rows.shape[1] * 2
    found = []
    for row in rows.astype("<u2"):
        at = flat.find(row.tobytes())
        assert at >= 0
        assert at % 2 == 0
        assert flat.find(row.tobytes(), at + 1, at + 1 + size) < 0
        found.append(at // 2)
    return found


@pytest.mark.parametrize("batch", [1, 7])
def test_an_epoch_visits_every_window_once(corpus: Corpus, batch: int) -> None:
    context, tokens = 64, corpus.tokens("train")
    windows = (len(tokens) - context) // context
    steps = math.ceil(2 * windows / batch)
    rows = np.concatenate([corpus.batch(s, batch=batch, context=context, seed=1) for s in range(steps)])
    first, second = (starts_of(rows[e * windows : (e + 1) * windows], tokens) for e in (0, 1))
    for starts in (first, second):
        offset = min(starts)
        assert sorted(starts) == [offset + i * context for i in range(windows)]
        assert 0 <= offset < context
    assert np.argsort(first).tolist() != np.argsort(second).tolist()
    assert min(first) != min(second)


def test_a_batch_may_be_larger_than_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"line {i}" for i in range(40)))
    corpus = corpus_of(tmp_path / "a.txt", tmp_path / "data", separator="\n")
    rows = corpus.batch(3, batch=64, context=32, seed=0)
    assert rows.shape == (64, 33)
    starts_of(rows, corpus.tokens("train"))


def test_windows_longer_than_the_text_are_refused(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="context 1000000 needs 2000000 tokens"):
        corpus.batch(0, batch=1, context=1_000_000, seed=0)
    with pytest.raises(DataError, match="takes 1000001 tokens, but the test part"):
        corpus.held_out_rows("test", 1_000_000)
    with pytest.raises(DataError, match="no prepared corpus"):
        open_corpus(corpus.directory / "nowhere")


def windows_of(corpus: Corpus, part: HeldOutPart, context: int) -> tuple[Windows, NDArray[np.uint32]]:
    """All windows of a part, and the bytes of their tokens."""
    (found,) = corpus.held_out_rows(part, context)
    assert isinstance(found.rows, np.ndarray)
    assert found.sizes is not None
    return found.rows, found.sizes


@pytest.mark.parametrize("part", SHARES)
@pytest.mark.parametrize("context", [16, 50])
def test_each_held_out_token_is_predicted_once(corpus: Corpus, part: HeldOutPart, context: int) -> None:
    tokens = corpus.tokens(part).astype(np.int64)
    windows, _ = windows_of(corpus, part, context)
    assert len(windows) == (len(tokens) - 1) // context
    np.testing.assert_array_equal(windows[:, 1:].ravel(), tokens[1 : 1 + windows[:, 1:].size])
    np.testing.assert_array_equal(windows[1:, 0], windows[:-1, -1])


@pytest.mark.parametrize(("part", "count"), [("test", 20), ("judging", 10), ("tuning", 10)])
def test_what_is_read_of_a_part_is_spread_over_it(
    part: HeldOutPart, count: int, corpus_file: Path, tmp_path: Path
) -> None:
    corpus = corpus_of(corpus_file, tmp_path / "data", validation_fraction=0.5, validation_tokens=1000)
    windows, sizes = windows_of(corpus, part, 50)
    assert windows.shape == (count, 51)
    starts = starts_of(windows, corpus.tokens(part))
    available = (len(corpus.tokens(part)) - 1) // 50
    assert len(set(starts)) == count
    assert all(start % 50 == 0 for start in starts)
    assert max(np.diff(starts)) <= 50 * math.ceil(available / count)
    assert sizes[:, 1:].sum() == sum(int((row[1:] != corpus.eos).sum()) for row in windows)


@pytest.mark.parametrize("tokenizer", ["bytes", BPE])
def test_validation_bytes_are_those_of_the_text(tokenizer: object, corpus_file: Path, tmp_path: Path) -> None:
    """One window over everything: its targets are the held-out documents, each with its end of text."""
    corpus = corpus_of(corpus_file, tmp_path / "data", tokenizer=tokenizer, validation_tokens=10**9)
    windows, sizes = windows_of(corpus, "test", len(corpus.tokens("test")) - 1)
    assert len(windows) == 1
    assert sizes[:, 1:].sum() == sum(len(text.encode()) for text in corpus.held_out("test"))
    assert (windows[0, 1:] == corpus.eos).sum() == len(corpus.held_out("test"))


def test_each_held_out_token_is_of_its_document(corpus_file: Path, tmp_path: Path) -> None:
    """The `eos` after a document is its own: text and `eos` of each, put together again, are the documents."""
    corpus = corpus_of(corpus_file, tmp_path / "data", validation_fraction=0.5, validation_tokens=10**9)
    (found,) = corpus.held_out_rows("test", len(corpus.tokens("test")) - 1)
    assert isinstance(found.rows, np.ndarray)
    for number, text in enumerate(corpus.held_out("test")):
        own = found.rows[0, 1:][found.items[0, 1:] == number]
        assert own.tolist() == [*text.encode(), corpus.eos]


@pytest.mark.parametrize("tokenizer", ["bytes", BPE])
def test_bits_per_byte_against_a_slow_count(tokenizer: object, corpus_file: Path, tmp_path: Path) -> None:
    """Nats drawn for each token, added up by document with the document's own bytes, in plain Python."""
    corpus = corpus_of(corpus_file, tmp_path / "data", tokenizer=tokenizer, validation_tokens=10**9)
    nats_of = np.random.default_rng(0).exponential(2.0, corpus.vocab_size)

    total_nats, total_bytes = 0.0, 0
    tokens, offsets = corpus.tokens("test"), corpus.document_offsets("test")
    for text, begin, end in zip(corpus.held_out("test"), offsets[:-1], offsets[1:], strict=True):
        total_bytes += len(text.encode())
        total_nats += sum(nats_of[token] for token in tokens[begin:end])

    windows, sizes = windows_of(corpus, "test", len(tokens) - 1)
    targets, size = windows[:, 1:], sizes[:, 1:].sum()
    loss = nats_of[targets].mean()
    assert loss * targets.size / (size * math.log(2)) == pytest.approx(total_nats / math.log(2) / total_bytes, rel=1e-9)


def test_training_bytes_are_kept(corpus: Corpus, texts: list[str]) -> None:
    assert corpus.meta.bytes.total == sum(len(text.encode()) for text in texts)
    assert corpus.train_tokens == corpus.meta.bytes.train + corpus.meta.documents.train + 1


REAL = {
    "tinyshakespeare/input.txt": "piece",
    "wikitext-2/test.txt": "piece",
    "books/validation.parquet": "piece",
}


@pytest.mark.parametrize("name", REAL)
def test_real_text(name: str, real_text: Path, tmp_path: Path) -> None:
    bpe = corpus_of(real_text / name, tmp_path, tokenizer={"kind": "bpe", "vocab_size": 512}, validation_tokens=10**9)
    plain = corpus_of(real_text / name, tmp_path, validation_tokens=10**9)
    assert plain.meta.unit == REAL[name]
    assert all(bpe.held_out(part) == plain.held_out(part) for part in SHARES)
    assert bpe.train_tokens < 0.7 * plain.train_tokens
    sizes = [windows_of(c, "test", len(c.tokens("test")) - 1)[1][:, 1:].sum() for c in (bpe, plain)]
    assert sizes[0] == sizes[1] == sum(len(text.encode()) for text in plain.held_out("test"))


@pytest.mark.parametrize(("batch", "context"), [(8, 256), (64, 1024)])
def test_batch_speed(benchmark: Any, tmp_path: Path, batch: int, context: int) -> None:
    corpus = prepare(parse("stdlib"), tmp_path)
    steps = iter(range(10**9))
    rows = benchmark(lambda: corpus.batch(next(steps), batch=batch, context=context, seed=0))
    assert rows.shape == (batch, context + 1)
