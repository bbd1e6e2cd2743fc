"""A prepared text corpus: memory-mapped tokens, the windows read from them, and the writer of a split's tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ablate.data.splitting import SHARES
from ablate.data.tokenizers._encoder import Encoder
from store import DataFolder, StoreError
from store.documents import HeldOutPart, TextMeta
from store.errors import DataError

# Training examples from a corpus.

Windows: TypeAlias = NDArray[np.int64]
"""(B, T + 1) tokens of text: the target at each position is the next token."""


@dataclass(frozen=True)
class Examples:
    """tokens, targets: (B, T). Inputs, and the target at each of them; −100 where the loss ignores the position."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Examples:
        return Examples(self.tokens[rows], self.targets[rows])


Rows: TypeAlias = Windows | Examples


@dataclass(frozen=True)
class HeldOutRows:
    """Rows to be scored. items, sizes: (B, T + 1), for the first input and each target. `items` is the index of the
    token's document or example; `sizes` is its number of bytes, None for synthetic tasks."""

    rows: Rows
    items: NDArray[np.int64]
    sizes: NDArray[np.uint32] | None


def width(rows: Rows) -> int:
    """T: tokens per row."""
    tokens = rows.tokens if isinstance(rows, Examples) else rows[:, 1:]
    return int(tokens.shape[1])


class Corpus:
    """Tokens of one text corpus under one tokenizer, written by `prepare`.

    Each split is one row of tokens, `eos d₁ eos d₂ … eos dₙ eos`. Every document token therefore has a predecessor
    that predicts it. A window may cross from one document into the next over the `eos` between them.
    """

    def __init__(self, folder: DataFolder, meta: TextMeta) -> None:
        self.directory, self.meta, self.folder = folder.path, meta, folder
        self.digest, self.vocab_size, self.eos = meta.digest, meta.vocab_size, meta.eos
        self.train_tokens = meta.tokens.train
        self.tokenizer_path = folder.tokenizer_path

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Windows:
        """(batch, context + 1) training tokens: inputs are [:, :-1], targets [:, 1:].

        A pure function of its arguments: the n-th window of a run is the same for every arm. An epoch visits every
        window once; (seed, epoch) determines the order of the windows and the offset of the first.

        Raises:
            DataError: the train split has fewer than 2 · context tokens.
        """
        windows = (self.train_tokens - context) // context
        if windows < 1:
            raise DataError(
                f"training at context {context} needs {2 * context} tokens, but the corpus has {self.train_tokens}"
            )
        first = step * batch
        out = np.empty((batch, context + 1), dtype=np.int64)
        # A batch may span the end of an epoch, a large one several.
        for epoch in range(first // windows, (first + batch - 1) // windows + 1):
            begin = max(first, epoch * windows)
            end = min(first + batch, (epoch + 1) * windows)
            starts = window_starts(begin % windows, end - begin, windows, context, (seed, epoch))
            for row, start in enumerate(starts, begin - first):
                out[row] = self._train[start : start + context + 1]
        return out

    def held_out_rows(self, part: HeldOutPart, context: int) -> list[HeldOutRows]:
        """Windows (n, context + 1) of a held-out part, with the document and the number of bytes of each token.

        The windows' targets do not overlap, so each target counts once. If the part has more than `most_tokens`,
        the windows are spread evenly over it.
        bits per byte = total nats / (bytes of the targets · ln 2); `eos` costs nats and stands for no byte.

        Raises:
            DataError: the part is shorter than one window.
        """
        tokens, sizes = self.held_out_tokens(part)
        positions = self.held_out_starts(part, context)[:, None] + np.arange(context + 1)
        windows = tokens[positions].astype(np.int64)
        # Index of each token's document; the `eos` after a document belongs to it.
        found: NDArray[np.int64] = np.searchsorted(self.document_offsets(part), positions, side="right") - 1
        documents = np.maximum(found, 0)  # the `eos` before the first document would be −1
        return [HeldOutRows(windows, documents, sizes[positions])]

    def held_out_starts(self, part: HeldOutPart, context: int) -> NDArray[np.int64]:
        """(n,): where the windows of a held-out part begin. Raises DataError if it is shorter than one window."""
        tokens = getattr(self.meta.tokens, part)
        available = (tokens - 1) // context
        count = min(available, max(1, self.most_tokens(part) // context))
        if count == 0:
            raise DataError(
                f"one window of context {context} takes {context + 1} tokens, but the {part} part of the held-out text"
                f" has {tokens}: raise data.validation_fraction, or lower the context"
            )
        starts: NDArray[np.int64] = np.arange(count) * available // count * context
        return starts

    def most_tokens(self, part: HeldOutPart) -> int:
        """Maximum number of tokens read from a held-out part."""
        return self.meta.validation_tokens * SHARES[part] // SHARES["test"]

    def widths(self, context: int) -> tuple[int, ...]:
        """Number of tokens in a training window."""
        return (context,)

    def held_out_tokens(self, part: HeldOutPart) -> tuple[NDArray[Any], NDArray[np.uint32]]:
        """All tokens of a held-out part, and the number of bytes that each stands for (0 for `eos`)."""
        return self.tokens(part), self._array(self.folder.bytes_path(part))

    def held_out(self, part: HeldOutPart) -> list[str]:
        """The documents of a held-out part."""
        path = self.folder.texts_path(part)
        with self._whole(path), path.open("rb") as lines:
            return [json.loads(line)["text"] for line in lines]

    def floor(self, _part: HeldOutPart) -> None:
        """None: the lowest possible loss on text is unknown."""

    def document_offsets(self, split: str) -> NDArray[np.int64]:
        """(documents + 1,) indices: document i is tokens[offsets[i] : offsets[i + 1] − 1], followed by its `eos`."""
        return self._array(self.folder.offsets_path(split))

    def tokens(self, split: str) -> NDArray[Any]:
        """The tokens of a split, memory-mapped (as a plain array: slicing `np.memmap` costs ten times as much)."""
        path, count = self.folder.tokens_path(split), getattr(self.meta.tokens, split)
        with self._whole(path):
            return np.asarray(np.memmap(path, dtype=self.meta.dtype, mode="r").reshape(count))

    @cached_property
    def _train(self) -> NDArray[Any]:
        return self.tokens("train")

    def _array(self, path: Path) -> NDArray[Any]:
        with self._whole(path):
            array: NDArray[Any] = np.load(path)
            return array

    @contextmanager
    def _whole(self, path: Path) -> Iterator[None]:
        """Turn errors of reading a missing or damaged file into a StoreError that names the remedy. Other system
        errors, such as too many open files, pass through."""
        try:
            yield
        except FileNotFoundError as error:
            raise StoreError(f"{path} is gone: remove {self.directory} to prepare the data again") from error
        except (ValueError, LookupError, TypeError, EOFError) as error:
            raise StoreError(f"{path} is damaged: remove {self.directory} to prepare the data again") from error


def window_starts(first: int, count: int, windows: int, context: int, key: tuple[int, int]) -> list[int]:
    """Start positions of windows `first` … `first + count − 1` of an epoch; `key` is (seed, epoch)."""
    index = np.arange(first, first + count, dtype=np.uint64)
    order = permuted(index, windows, key).astype(np.int64)
    starts: list[int] = (offset(context, key) + order * context).tolist()
    return starts


ROUNDS = 4


def permuted(index: NDArray[np.uint64], size: int, key: tuple[int, ...]) -> NDArray[np.uint64]:
    """π(index), where π is a permutation of 0 … size−1 determined by `key`.

    On k-bit integers (size ≤ 2^k < 2·size), multiplying by an odd number, adding a constant, and x ^= x >> ⌈k/2⌉ are
    each invertible, hence so are rounds of them. A value of `size` or more is scrambled again until it falls below
    (cycle walking; Black & Rogaway 2002), fewer than two passes on average. Memory does not grow with `size`.
    """
    bits = max(1, (size - 1).bit_length())
    value = _scrambled(index, bits, key)
    outside = np.flatnonzero(value >= size)
    while outside.size:
        value[outside] = _scrambled(value[outside], bits, key)
        outside = outside[value[outside] >= size]
    return value


def _scrambled(x: NDArray[np.uint64], bits: int, key: tuple[int, ...]) -> NDArray[np.uint64]:
    """A permutation of the `bits`-bit integers: `ROUNDS` rounds of x ← x · factor + addend, x ^= x >> ⌈bits/2⌉."""
    mask = np.uint64((1 << bits) - 1)
    half = np.uint64((bits + 1) // 2)
    for factor, addend in _round_keys(key):
        x = (x * factor + addend) & mask
        x ^= x >> half
    return x


@lru_cache(maxsize=64)
def offset(below: int, key: tuple[int, ...]) -> int:
    """A number from 0 to `below` − 1 determined by `key`, independent of the permutation."""
    return int(np.random.default_rng((*key, below)).integers(below))


@lru_cache(maxsize=64)
def _round_keys(key: tuple[int, ...]) -> tuple[tuple[np.uint64, np.uint64], ...]:
    words = np.random.SeedSequence(key).generate_state(2 * ROUNDS, np.uint64)
    return tuple((words[2 * i] | np.uint64(1), words[2 * i + 1]) for i in range(ROUNDS))


class SplitWriter:
    """Writes the tokens of a split as `eos d₁ eos d₂ … eos`, and on exit the offsets of its documents.

    For held-out documents, writes the text and the number of bytes of each token too.
    """

    def __init__(
        self, folder: DataFolder, split: str, encoder: Encoder, vocab_size: int, held_out: bool = False
    ) -> None:
        self.split = split
        self.tokens = 0
        self.bytes = 0
        self._folder = folder
        self._encoder = encoder
        self._dtype = np.dtype(self.dtype_of(vocab_size))
        self._starts: list[int] = []
        self._sizes: list[NDArray[np.uint32]] = []
        self._held_out = held_out
        self._files = ExitStack()

    @staticmethod
    def dtype_of(vocab_size: int) -> str:
        return "<u2" if vocab_size <= 1 << 16 else "<u4"

    def __enter__(self) -> Self:
        self._bin = self._files.enter_context(self._folder.tokens_path(self.split).open("wb"))
        if self._held_out:
            path = self._folder.texts_path(self.split)
            self._texts = self._files.enter_context(path.open("w", encoding="utf-8"))
        self._append(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint32))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()
        if kind is None:
            offsets = np.array([*self._starts, self.tokens], dtype=np.int64)
            np.save(self._folder.offsets_path(self.split), offsets)
            if self._held_out:
                np.save(self._folder.bytes_path(self.split), np.concatenate(self._sizes))

    def add(self, texts: list[bytes]) -> None:
        """Append documents, each given as UTF-8."""
        self.bytes += sum(map(len, texts))
        if not self._held_out:
            for ids in self._encoder.encode(texts):
                self._add_document(ids, np.empty(0, dtype=np.uint32))
            return
        for text in texts:
            self._texts.write(json.dumps({"text": text.decode()}) + "\n")
        for ids, sizes in self._encoder.encode_with_bytes(texts):
            self._add_document(ids, sizes)

    def _add_document(self, ids: NDArray[np.int64], sizes: NDArray[np.uint32]) -> None:
        self._starts.append(self.tokens)
        self._append(ids, sizes)

    def _append(self, ids: NDArray[np.int64], sizes: NDArray[np.uint32]) -> None:
        """Write tokens and the `eos` after them."""
        row = np.append(ids, self._encoder.eos).astype(self._dtype)
        self._bin.write(row.tobytes())
        self.tokens += len(row)
        self._sizes.append(np.append(sizes, np.uint32(0)))
