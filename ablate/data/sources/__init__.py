"""Where text comes from: one file per source.

`stdlib` is on every machine, `files` are yours, `hf` streams from the Hugging Face Hub.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt

from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bytes import BytesTokenizer
from zoo.axis import Choice, Spec


class DataSource(Spec, ABC):
    """A corpus: documents, how they are split, and how they become tokens."""

    source: str
    tokenizer: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] = BytesTokenizer()
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the bytes held out: documents in the order of their hashes, until they make that share."""
    validation_tokens: PositiveInt = 65536
    """Most tokens that one validation predicts, in windows spread evenly over all that is held out."""

    @abstractmethod
    def documents(self, base: Path) -> Iterator[str]:
        """The documents, always in the same order. Relative paths start from `base`.

        Raises:
            DataError: they cannot be read.
        """

    def held_out(self, base: Path) -> Iterator[str] | None:
        """Documents for validation alone, or None: then they are chosen among `documents`."""
        return None

    def fingerprint(self) -> str | None:
        """What stands for the content where reading it is dear, or None: then it is read and hashed."""
        return None
