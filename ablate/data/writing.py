"""Write the tokens of one split."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ablate.data.tokenizers._encoder import Encoder
from store import DataFolder


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
