"""A tokenizer folder that transformers loads."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from ablate.data.paths import expanded
from ablate.data.tokenizers._loaded import LoadedTokenizer
from store.errors import DataError


class TransformersTokenizer(LoadedTokenizer):
    """A folder as transformers saves tokenizers, such as one with `vocab.json` and `merges.txt`: pairs merge in the
    order of their lines, in words as split by the class that the configs name. Needs the extra `hf`.

    The tokenizer is identified by the tokenizer.json that transformers makes of the files.
    """

    kind: Literal["transformers"] = "transformers"
    path: str
    """Folder, relative to the study's file; `~` and `$VARIABLES` are expanded."""

    @property
    def named(self) -> str:
        return self.path

    def content(self, base: Path) -> str:
        return hashlib.sha256(_made(expanded(self.path, base)).encode()).hexdigest()

    def loaded(self, base: Path) -> Tokenizer:
        return Tokenizer.from_str(_made(expanded(self.path, base)))


@lru_cache(maxsize=2)
def _made(folder: Path) -> str:
    """The tokenizer, converted to a tokenizer.json. Raises DataError."""
    if not folder.is_dir():
        raise DataError(f"tokenizer.path: there is no folder {folder}")
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 (slow to load, and an extra)
    except ImportError as error:
        raise DataError(f"tokenizer.path: {folder} needs transformers: pip install transformers") from error
    try:
        return str(AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer.to_str())
    except Exception as error:  # its readers raise many kinds of errors
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"tokenizer.path: {folder}: transformers cannot read its tokenizer: {said}") from error
