"""An existing tokenizer.json."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from ablate.data.tokenizers._loaded import LocalTokenizer, tokenizer_of


class FileTokenizer(LocalTokenizer):
    """A `tokenizer.json` as Hugging Face `tokenizers` writes it, used as it is."""

    kind: Literal["file"] = "file"

    def loaded(self, base: Path) -> Tokenizer:
        return tokenizer_of(self.read(base), f"tokenizer.path: {self.path}")
