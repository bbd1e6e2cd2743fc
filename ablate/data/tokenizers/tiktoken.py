"""Rank files of OpenAI's tiktoken."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ablate.data.tokenizers._encoder import EOS
from ablate.data.tokenizers._loaded import LocalTokenizer
from ablate.data.tokenizers.bytes import byte_characters
from store.errors import DataError

_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SPACE = r"\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACE}",
    "cl100k_base": rf"{_END}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACE}",
    "o200k_base": rf"{_BEFORE}{_UPPER}*{_LOWER}+{_END}?|{_BEFORE}{_UPPER}+{_LOWER}*{_END}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{_SPACE}",
}
"""Patterns that split text into words; pairs merge inside a word only."""
ENDS = {50_256: 50_256, 100_256: 100_257, 199_998: 199_999}
"""Id of `<|endoftext|>` in OpenAI's own encodings, keyed by their number of ranks."""

Ranks = Mapping[bytes, int]


class TiktokenTokenizer(LocalTokenizer):
    """A `.tiktoken` file: a line per token, its bytes in base64 and its rank. Does not need the package tiktoken.

    Inside a word, the adjacent pair whose union has the lowest rank merges first, until no union has a rank.
    """

    kind: Literal["tiktoken"] = "tiktoken"
    words: Literal["gpt2", "cl100k_base", "o200k_base"] = "cl100k_base"
    """Encoding whose pattern splits text into words."""
    end: int | None = None
    """Id of `<|endoftext|>`; null for OpenAI's own, or, in a file of another size, the id after the largest rank."""

    def content(self, base: Path) -> str:
        return hashlib.sha256(self.read(base) + f"{self.words} {self.end}".encode()).hexdigest()

    def loaded(self, base: Path) -> Tokenizer:
        return Tokenizer.from_str(_converted(self.read(base), self.words, self.end, self.path))


@lru_cache(maxsize=2)
def _converted(content: bytes, words: str, end: int | None, path: str) -> str:
    """The encoding, converted to a tokenizer.json. Raises DataError."""
    try:
        lines = (line.split() for line in content.splitlines() if line.strip())
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except (ValueError, binascii.Error) as error:
        raise DataError(f"tokenizer.path: {path} has a line that is not base64 and a number: {error}") from error
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise DataError(f"tokenizer.path: {path} has no token for the byte {missing[0]} and {len(missing) - 1} others")
    spelt = byte_characters()
    vocabulary = {"".join(spelt[byte] for byte in token): rank for token, rank in ranks.items()}
    merges = [tuple("".join(spelt[byte] for byte in half) for half in pair) for pair in _merges(ranks)]
    last = ENDS.get(len(ranks), max(ranks.values()) + 1) if end is None else end
    if last in ranks.values():
        raise DataError(f"tokenizer.end: {path} has another token with the id {last}")
    model = models.BPE(vocabulary | {EOS: last}, [(a, b) for a, b in merges], ignore_merges=True)
    tokenizer = Tokenizer(model)
    cut = pre_tokenizers.Split(Regex(PATTERNS[words]), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True, normalized=False)])
    return tokenizer.to_str()


def _merges(ranks: Ranks) -> list[tuple[bytes, bytes]]:
    """The merge of each token, in the order of ranks: its two parts after all merges of lower rank. A token not left
    with two parts results from no merge; it only matches a whole word (`ignore_merges`)."""
    found = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = _parts(token, ranks, rank) if len(token) > 1 else []
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


def _parts(word: bytes, ranks: Ranks, below: int) -> list[bytes]:
    """Parts of a word after merging pairs whose union ranks below `below`, lowest rank first."""
    parts = [bytes([byte]) for byte in word]
    while True:
        unions = [ranks.get(a + b, below) for a, b in pairwise(parts)]
        lowest = min(unions, default=below)
        if lowest >= below:
            return parts
        place = unions.index(lowest)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
