"""Byte tokenizer: needs no training and is lossless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS, Bytes, Encoder, Tokens

EOS_ID = 256


class BytesTokenizer(TokenizerSpec):
    """Ids 0–255 are the bytes of UTF-8, and 256 is `<|endoftext|>` (ByT5, arXiv:2105.13626, without its offset)."""

    kind: Literal["bytes"] = "bytes"

    def vocabulary(self, base: Path) -> int:
        return EOS_ID + 1

    def encoder(self, texts: Iterable[str], base: Path) -> Encoder:
        return _BytesEncoder(byte_tokenizer(), EOS_ID)


class _BytesEncoder(Encoder):
    """Fast path: views the UTF-8 bytes as ids, the same that `byte_tokenizer()` gives."""

    def encode(self, texts: Sequence[bytes]) -> Iterator[Tokens]:
        for utf8 in texts:
            yield np.frombuffer(utf8, dtype=np.uint8).astype(np.int64)

    def encode_with_bytes(self, texts: Sequence[bytes]) -> Iterator[tuple[Tokens, Bytes]]:
        for ids in self.encode(texts):
            yield ids, np.ones(len(ids), dtype=np.uint32)


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges whose ids are the byte values."""
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, EOS: EOS_ID}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_characters() -> dict[int, str]:
    """The printable character that spells each byte in byte-level vocabularies (as in GPT-2).

    Printable Latin-1 characters stand for themselves; the other bytes, in order, are U+0100, U+0101, …
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {
        **{byte: chr(byte) for byte in printable},
        **{byte: chr(256 + i) for i, byte in enumerate(others)},
    }
