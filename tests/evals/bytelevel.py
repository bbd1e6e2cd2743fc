"""Tokenizers whose tokens are bytes, and merges of bytes: tests can encode by hand."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EOS = 256


def byte_level(merges: list[tuple[str, str]]) -> Tokenizer:
    """Bytes, and then the given merges, from id 257 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    vocabulary = {letters[b]: b for b in range(256)} | {"<eos>": EOS}
    vocabulary |= {a + b: EOS + 1 + i for i, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
