"""Encode documents, and count the bytes that each token stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer, decoders

from store.errors import DataError

EOS = "<|endoftext|>"

Tokens = NDArray[np.int64]
Bytes = NDArray[np.uint32]


class Encoder:
    """A `tokenizers.Tokenizer` with its end-of-text id and exact byte counts. named: its name in messages."""

    def __init__(self, tokenizer: Tokenizer, eos: int, named: str = "the tokenizer") -> None:
        self.tokenizer = tokenizer
        self.eos = eos
        self.named = named

    def encode(self, texts: Sequence[bytes]) -> Iterator[Tokens]:
        """Token ids of each UTF-8 text, without the end-of-text id."""
        for encoding in self._encodings(texts):
            yield np.array(encoding.ids, dtype=np.int64)

    def encode_with_bytes(self, texts: Sequence[bytes]) -> Iterator[tuple[Tokens, Bytes]]:
        """Token ids of each text, and the number of bytes of each token; the bytes sum to the text's length."""
        for utf8, encoding in zip(texts, self._encodings(texts), strict=True):
            ids = np.array(encoding.ids, dtype=np.int64)
            if self._table is not None and int(self._table[ids].sum()) == len(utf8):
                yield ids, self._table[ids]
            else:
                yield ids, bytes_by_offset(utf8.decode(), encoding.offsets)

    def _encodings(self, texts: Sequence[bytes]) -> list[Encoding]:
        try:
            return self.tokenizer.encode_batch([utf8.decode() for utf8 in texts], add_special_tokens=False)
        except BaseException as error:
            if not is_panic(error):
                raise
            reason = str(error).partition("\n")[0]
            raise DataError(f"{self.named} cannot encode the text: an expression in it fails: {reason}") from error

    @cached_property
    def _table(self) -> Bytes | None:
        """Bytes per token id of a byte-level vocabulary, in which one character spells one byte."""
        if not isinstance(self.tokenizer.decoder, decoders.ByteLevel):
            return None
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=False)
        added = self.tokenizer.get_added_tokens_decoder()
        table = np.zeros(1 + max([self.eos, *vocabulary.values(), *added]), dtype=np.uint32)
        for token, index in vocabulary.items():
            table[index] = len(token)
        for index, token_added in added.items():
            table[index] = len(token_added.content.encode())
        table[self.eos] = 0
        return table


def is_panic(error: BaseException) -> bool:
    """Whether the library's Rust code panicked, as on an expression that backtracks without end. Its exception derives
    from BaseException and cannot be imported."""
    return type(error).__name__ == "PanicException"


def bytes_by_offset(text: str, offsets: Sequence[tuple[int, int]]) -> Bytes:
    """(n,): number of bytes of `text` that each token stands for, from the tokens' (start, end) character offsets.

    A token owns the text from the end of the previous token to its own end, so that spaces which a tokenizer drops
    are counted once; the last token owns the rest. The sum is the text's length in bytes if there is any token.
    """
    length = np.fromiter((len(c.encode()) for c in text), dtype=np.int64, count=len(text))
    position = np.concatenate([[0], np.cumsum(length)])
    ends = np.maximum.accumulate(np.array([end for _, end in offsets], dtype=np.int64))
    if len(ends):
        ends[-1] = len(text)
    return np.diff(position[ends], prepend=0).astype(np.uint32)
