"""Pretrained tokenizers."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer

from ablate.data.paths import expanded
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS, Encoder, is_panic
from store.documents import JsonObject
from store.errors import DataError
from store.files import read_regular

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
