"""SentencePiece models."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from ablate.data.tokenizers._loaded import LocalTokenizer
from store.documents import JsonObject
from store.errors import DataError

# Reader of SentencePiece `.model` files: reads the needed fields of the protocol buffer.
#
# https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto

Value = int | bytes
Fields = dict[int, list[Value]]

PIECES, TRAINER, NORMALIZER = 1, 2, 3
"""Field numbers of the model."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of a piece."""
UNIGRAM, BPE = 1, 2


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    type: int


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces in the order of their ids, and the settings that normalise text."""

    pieces: tuple[Piece, ...]
    kind: int
    byte_fallback: bool
    suffix: bool
    """Whether the space marker ▁ ends words instead of beginning them (`treat_whitespace_as_suffix`)."""
    unknown: int
    charsmap: bytes
    """Precompiled character replacements, in the format that `tokenizers` reads; may be empty."""
    prefix: bool
    """Whether a space is prepended to text (`add_dummy_prefix`)."""
    strips: bool
    """Whether spaces at both ends are dropped and runs of spaces become one (`remove_extra_whitespaces`)."""
    escapes: bool
    """Whether a space is spelt ▁ (`escape_whitespaces`)."""


def parsed(content: bytes) -> SentencePieceModel:
    """Parse a `.model` file. Raises ValueError if the content is not one."""
    try:
        model = _fields(content)
        pieces = tuple(_piece(_fields(bytes_of(each))) for each in model[PIECES])
        trainer, normalizer = (_fields(bytes_of(model[field][-1])) for field in (TRAINER, NORMALIZER))
    except (KeyError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a SentencePiece model") from error
    return SentencePieceModel(
        pieces=pieces,
        kind=_number(trainer, 3, UNIGRAM),
        byte_fallback=bool(_number(trainer, 35, 0)),
        suffix=bool(_number(trainer, 24, 0)),
        unknown=_number(trainer, 40, 0),
        charsmap=bytes_of(normalizer.get(2, [b""])[-1]),
        prefix=bool(_number(normalizer, 3, 1)),
        strips=bool(_number(normalizer, 4, 1)),
        escapes=bool(_number(normalizer, 5, 1)),
    )


def _piece(fields: Fields) -> Piece:
    (score,) = struct.unpack("<f", bytes_of(fields.get(2, [bytes(4)])[-1]))
    return Piece(bytes_of(fields[1][-1]).decode(), score, _number(fields, 3, NORMAL))


def _number(fields: Fields, field: int, default: int) -> int:
    value = fields.get(field, [default])[-1]
    if isinstance(value, bytes):
        raise ValueError(f"field {field} is not a number")
    return value


def bytes_of(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("expected bytes, found a number")
    return value


def _fields(message: bytes) -> Fields:
    """Decode the wire format of protocol buffers: the values of each field, in order, keyed by field number. Raises
    IndexError if a varint is cut off, ValueError if a value is cut off or the format is another."""
    found: Fields = {}
    for field, value in _values(message):
        found.setdefault(field, []).append(value)
    return found


def _values(message: bytes) -> Iterator[tuple[int, Value]]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, wire = key >> 3, key & 7
        if wire == 0:
            number, place = _varint(message, place)
            yield field, number
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"not a SentencePiece model: wire type {wire}")
        if place + size > len(message):
            raise ValueError("truncated SentencePiece model")
        yield field, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Decode a varint: seven bits a byte, the lowest first; the eighth is set on all but the last. Returns the number
    and the position after it."""
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


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
        """Includes a version for models whose conversion changed in December 2026, as it gave other ids for some
        texts."""
        found, model = super().identity(base), parsed(self.read(base))
        symbols = any(piece.type == USER_DEFINED for piece in model.pieces)
        corrected = symbols or model.strips or model.charsmap or (model.kind == UNIGRAM and list(_cuts(model)))
        return {**found, "identity_version": 2} if corrected else found


@lru_cache(maxsize=2)
def _converted(content: bytes, path: str) -> str:
    """The model, converted to a tokenizer.json. Raises DataError."""
    try:
        found = parsed(content)
    except ValueError as error:
        raise DataError(f"tokenizer.path: {path}: {error}") from error
    reason = None
    if found.kind not in (UNIGRAM, BPE):
        reason = "cuts text into words or characters"
    elif found.suffix or not found.escapes:
        reason = "marks spaces otherwise than by ▁ before a word"
    if reason is not None:
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
