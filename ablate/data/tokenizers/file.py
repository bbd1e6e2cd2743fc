"""An existing tokenizer.json."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from ablate.data.error import DataError
from ablate.data.paths import expanded
from ablate.data.tokenizers._loaded import LoadedTokenizer, tokenizer_of


class FileTokenizer(LoadedTokenizer):
    """A `tokenizer.json` as Hugging Face `tokenizers` writes it, used as it is."""

    kind: Literal["file"] = "file"
    path: str
    """Relative to the study's file; `~` and `$VARIABLES` are expanded."""

    @property
    def named(self) -> str:
        return self.path

    def content(self, base: Path) -> str:
        return hashlib.sha256(self._read(base)).hexdigest()

    def loaded(self, base: Path) -> Tokenizer:
        return tokenizer_of(self._read(base), f"tokenizer.path: {self.path}")

    def _read(self, base: Path) -> bytes:
        path = expanded(self.path, base)
        try:
            return path.read_bytes()
        except OSError as error:
            raise DataError(f"tokenizer.path: cannot read {path}: {error.strerror}") from error
