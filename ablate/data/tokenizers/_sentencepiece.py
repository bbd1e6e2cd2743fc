"""Reader of SentencePiece `.model` files: reads the needed fields of the protocol buffer.

https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

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
