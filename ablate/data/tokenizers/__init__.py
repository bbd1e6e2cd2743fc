"""Tokenizers: one file per kind.

`bytes`, byte-level `bpe` trained on the corpus itself, or one already trained (`file`, `hf`, `sentencepiece`,
`tiktoken`, `transformers`). Each becomes a `tokenizers.Tokenizer`, saved beside the tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from ablate.data.tokenizers._encoder import Encoder
from store.documents import JsonObject
from zoo.settings.axis import Variant
from zoo.settings.identity import identity_of


class TokenizerSpec(Variant, ABC):
    """A tokenizer as a study configures it. Relative paths in it start from `base`."""

    learns: ClassVar[bool] = False
    """Whether the tokenizer is trained on the study's own text."""

    @abstractmethod
    def vocabulary(self, base: Path) -> int:
        """Number of token ids, end of text included."""

    @abstractmethod
    def encoder(self, texts: Iterable[str], base: Path) -> Encoder:
        """An encoder; a tokenizer that `learns` is trained on `texts`, in their order."""

    def identity(self, base: Path) -> JsonObject:
        """Settings that determine the token ids, apart from the corpus."""
        found: JsonObject = identity_of(self)
        return found
