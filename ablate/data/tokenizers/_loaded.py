"""Pretrained tokenizers."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer, decoders

from ablate.data.paths import expanded
from ablate.data.tokenizers import TokenizerSpec
from store.documents import JsonObject
from store.errors import DataError
from store.files import read_regular

# Encode documents, and count the bytes that each token stands for.

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


KNOWN_EOS = (EOS, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>", "[SEP]")


class LoadedTokenizer(TokenizerSpec):
    """A pretrained tokenizer, identified by its content, not by its path."""

    eos: str | None = None
    """Token that ends a document; null looks for the usual names (`<|endoftext|>`, `</s>`, `<eos>`, …)."""

    @property
    @abstractmethod
    def named(self) -> str:
        """Name of the tokenizer in messages."""

    @abstractmethod
    def content(self, base: Path) -> str:
        """Hash of everything that determines the token ids. Raises DataError."""

    @abstractmethod
    def loaded(self, base: Path) -> Tokenizer:
        """Load the tokenizer. Raises DataError."""

    def vocabulary(self, base: Path) -> int:
        return max(self._load(base).get_vocab(with_added_tokens=True).values()) + 1

    def identity(self, base: Path) -> JsonObject:
        # The same file on disk and on the hub has one identity.
        return {"kind": "file", "content": self.content(base), "eos": self._eos(self._load(base))}

    def encoder(self, texts: Iterable[str], base: Path) -> Encoder:
        tokenizer = self._load(base)
        return Encoder(tokenizer, self._eos(tokenizer), self.named)

    def _load(self, base: Path) -> Tokenizer:
        tokenizer = self.loaded(base)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # text that spells a special token is encoded as plain text
        return tokenizer

    def _eos(self, tokenizer: Tokenizer) -> int:
        for name in KNOWN_EOS if self.eos is None else (self.eos,):
            index = tokenizer.token_to_id(name)
            if index is not None:
                return int(index)
        lacks = f"none of the tokens {', '.join(KNOWN_EOS)}" if self.eos is None else f"no token {self.eos}"
        raise DataError(f"tokenizer.eos: {self.named} has {lacks}: name the one that ends a document")


class LocalTokenizer(LoadedTokenizer):
    """A pretrained tokenizer in a local file."""

    path: str
    """Relative to the study's file; `~` and `$VARIABLES` are expanded."""

    @property
    def named(self) -> str:
        return self.path

    def content(self, base: Path) -> str:
        return hashlib.sha256(self.read(base)).hexdigest()

    def read(self, base: Path) -> bytes:
        """The file's content. Raises DataError."""
        path = expanded(self.path, base)
        try:
            return read_regular(path)
        except OSError as error:
            raise DataError(f"tokenizer.path: cannot read {path}: {error.strerror or 'not a regular file'}") from error


def tokenizer_of(content: bytes, named: str) -> Tokenizer:
    """The tokenizer in a tokenizer.json. Raises DataError."""
    try:
        return Tokenizer.from_buffer(content)
    except BaseException as error:  # `tokenizers` raises ValueError, bare Exception, or a Rust panic
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise DataError(f"{named} is not a tokenizer.json: {error}") from error
