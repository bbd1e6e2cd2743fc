"""SentencePiece models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from ablate.data.tokenizers._loaded import LocalTokenizer
from ablate.data.tokenizers._sentencepiece import BPE, NORMAL, UNIGRAM, USER_DEFINED, SentencePieceModel, parsed
from store.documents import JsonObject
from store.errors import DataError

SPACE = "▁"
NEVER = -1e9
"""Score of pieces that plain text must not yield. Any other segmentation scores higher, except one with an unknown
character (see `_cuts`)."""
STAND_IN = 0xF0000
"""First of the private-use characters that replace user-defined symbols, so that normalisation leaves them intact."""


class SentencePieceTokenizer(LocalTokenizer):
    """A SentencePiece `.model` (Kudo & Richardson 2018, arXiv:1808.06226), unigram or BPE, converted. Does not need
    the package sentencepiece.

    Unigram (Kudo 2018, arXiv:1804.10959) takes the segmentation with the largest sum of scores. BPE merges the
    adjacent pair whose union has the highest score, until no union is a piece.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"

    def loaded(self, base: Path) -> Tokenizer:
        return Tokenizer.from_str(_converted(self.read(base), self.path))

    def identity(self, base: Path) -> JsonObject:
        """Includes a version for models to which the first conversion gave other ids for some texts."""
        found = super().identity(base)
        return {**found, "identity_version": 2} if _corrected(parsed(self.read(base))) else found


@lru_cache(maxsize=2)
def _converted(content: bytes, path: str) -> str:
    """The model, converted to a tokenizer.json. Raises DataError."""
    try:
        found = parsed(content)
    except ValueError as error:
        raise DataError(f"tokenizer.path: {path}: {error}") from error
    if reason := _refusal(found):
        raise DataError(
            f"tokenizer.path: {path} {reason}, which cannot be converted: `AutoTokenizer.from_pretrained(DIR)"
            ".save_pretrained(DIR)` of transformers may write a tokenizer.json"
        )
    tokenizer = Tokenizer(_unigram(found) if found.kind == UNIGRAM else _bpe(found))
    tokenizer.normalizer = normalizers.Sequence(list(_normalizers(found)))
    if found.kind == UNIGRAM and (cuts := list(_cuts(found))):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Sequence(list(_decoders(found)))
    return tokenizer.to_str()


def _corrected(found: SentencePieceModel) -> bool:
    """Whether the conversion of this model changed in December 2026."""
    symbols = any(piece.type == USER_DEFINED for piece in found.pieces)
    return bool(symbols or found.strips or found.charsmap or (found.kind == UNIGRAM and list(_cuts(found))))


def _refusal(found: SentencePieceModel) -> str | None:
    if found.kind not in (UNIGRAM, BPE):
        return "cuts text into words or characters"
    if found.suffix or not found.escapes:
        return "marks spaces otherwise than by ▁ before a word"
    return None


def _unigram(found: SentencePieceModel) -> Model:
    """Control symbols, bytes and unused pieces keep their ids, but text that spells them is segmented otherwise."""
    most = max((piece.score for piece in found.pieces if piece.type == NORMAL), default=0.0)

    def score(text: str, score: float, kind: int) -> float:
        if kind == USER_DEFINED:
            return len(text.encode()) * most - 0.1  # as SentencePiece scores them
        return score if kind == NORMAL else NEVER

    scored = [(piece.text, score(piece.text, piece.score, piece.type)) for piece in found.pieces]
    return models.Unigram(scored, found.unknown, found.byte_fallback)


def _cuts(found: SentencePieceModel) -> Iterator[PreTokenizer]:
    """Pre-tokenizers that split text inside a control symbol, byte or unused piece, at a character in no normal piece.
    Without the split the piece would win, since an unknown character scores below `NEVER`."""
    spelt = {letter for piece in found.pieces if piece.type == NORMAL for letter in piece.text}
    ends: dict[tuple[str, str], list[str]] = {}
    for piece in found.pieces:
        if piece.type not in (NORMAL, USER_DEFINED):
            place = next((place for place, letter in enumerate(piece.text) if letter not in spelt), None)
            if place is not None:
                ends.setdefault((piece.text[:place], piece.text[place]), []).append(piece.text[place + 1 :])
    for (before, unknown), after in ends.items():
        rest = "|".join(map(re.escape, after))
        behind = f"(?<={re.escape(before)})" if before else ""
        # Adjacent unknown characters make one token, so split after the unknown character where the piece goes on.
        side = "merged_with_previous" if all(after) else "merged_with_next"
        yield pre_tokenizers.Split(Regex(f"{behind}{re.escape(unknown)}(?={rest})"), side)


def _bpe(found: SentencePieceModel) -> Model:
    """Merges, ordered by the score of their union. Only normal pieces result from merges; a user-defined symbol is one
    stand-in character, which never merges."""
    stand_ins = dict(_stand_ins(found))
    scores = {piece.text: piece.score for piece in found.pieces if piece.type == NORMAL}
    merges = [
        (-score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ranked = sorted(merges, key=lambda merge: merge[0])
    return models.BPE(
        {
            stand_ins.get(piece.text, piece.text) if piece.type == USER_DEFINED else piece.text: index
            for index, piece in enumerate(found.pieces)
        },
        [(left, right) for _, left, right in ranked],
        unk_token=found.pieces[found.unknown].text,
        fuse_unk=True,
        byte_fallback=found.byte_fallback,
    )


def _stand_ins(found: SentencePieceModel) -> Iterator[tuple[str, str]]:
    """User-defined symbols with their stand-in characters, longest first: the longest match wins."""
    symbols = sorted((p.text for p in found.pieces if p.type == USER_DEFINED), key=len, reverse=True)
    yield from ((symbol, chr(STAND_IN + place)) for place, symbol in enumerate(symbols))


def _normalizers(found: SentencePieceModel) -> Iterator[Normalizer]:
    for symbol, stand_in in _stand_ins(found):
        yield normalizers.Replace(symbol, stand_in)
    if found.prefix and not found.strips:
        yield normalizers.Prepend(SPACE)
    if found.charsmap:
        precompiled = normalizers.Precompiled(found.charsmap)
        # `Precompiled` works on grapheme clusters, and \r\n is one: normalise its \r beforehand.
        yield normalizers.Replace(Regex("\\r(?=\\n)"), precompiled.normalize_str("\r"))
        yield precompiled
    if found.strips:
        yield normalizers.Replace(Regex(f"\\A +|[ {SPACE}]+\\z"), "")
        yield normalizers.Replace(Regex(" {2,}"), " ")
        if found.prefix:
            yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)
    for symbol, stand_in in _stand_ins(found):
        # The unigram model spells symbols as written; BPE keeps stand-ins and matches symbols in normalised text too.
        yield normalizers.Replace(*((symbol, stand_in) if found.kind == BPE else (stand_in, symbol)))


def _decoders(found: SentencePieceModel) -> Iterator[Decoder]:
    yield decoders.Replace(SPACE, " ")
    yield decoders.ByteFallback()
    yield decoders.Fuse()
    if found.kind == BPE:
        yield from (decoders.Replace(stand_in, symbol) for symbol, stand_in in _stand_ins(found))
    if found.prefix:
        yield decoders.Strip(" ", 1, 0)
