"""An existing tokenizer.json."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from ablate.data.error import DataError
from ablate.data.paths import expanded
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS, Encoder
from ablate.store.documents import JsonObject

KNOWN_EOS = (EOS, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>", "[SEP]")


class FileTokenizer(TokenizerSpec):
    """A `tokenizer.json` as Hugging Face `tokenizers` writes it, used as it is."""

    kind: Literal["file"] = "file"
    path: str
    """Relative to the study's file; `~` and `$VARIABLES` are expanded."""
    eos: str | None = None
    """The token that ends a document; null looks for the usual names (`<|endoftext|>`, `</s>`, `<eos>`, …)."""

    def vocabulary(self, base: Path) -> int:
        return max(self._load(base).get_vocab(with_added_tokens=True).values()) + 1

    def identity(self, base: Path) -> JsonObject:
        content = hashlib.sha256(self._read(base)).hexdigest()
        return {"kind": self.kind, "content": content, "eos": self._eos(self._load(base))}

    def encoder(self, texts: Iterable[str], base: Path) -> Encoder:
        tokenizer = self._load(base)
        return Encoder(tokenizer, self._eos(tokenizer))

    def _read(self, base: Path) -> bytes:
        path = expanded(self.path, base)
        try:
            return path.read_bytes()
        except OSError as error:
            raise DataError(f"tokenizer.path: cannot read {path}: {error.strerror}") from error

    def _load(self, base: Path) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_buffer(self._read(base))
        except ValueError as error:  # what from_buffer raises for JSON it does not understand
            raise DataError(f"tokenizer.path: {self.path} is not a tokenizer.json: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # text that spells an end of text is text
        return tokenizer

    def _eos(self, tokenizer: Tokenizer) -> int:
        for name in KNOWN_EOS if self.eos is None else (self.eos,):
            index = tokenizer.token_to_id(name)
            if index is not None:
                return index
        looked_for = "any of " + ", ".join(KNOWN_EOS) if self.eos is None else self.eos
        raise DataError(f"tokenizer.eos: {self.path} has no token {looked_for}: name the one that ends a document")
