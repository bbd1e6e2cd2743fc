"""SHA-256 of files and texts, and seals: a checksum at the end of a file, over its content and its owner or path.

One rename replaces a sealed file together with its checksum, so a kill cannot separate them. A document's seal also
has its path within the store, so that a file of one run is not taken for another's. Documents of earlier versions have
the checksum alone, or none. A document written by hand has none, and is not checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

from store.files import check_regular

SEAL = b"\nsealed "
"""Bytes before the checksum at the end of a binary file; the checksum is over the owner's name and the content."""
SEAL_BYTES = len(SEAL) + 32
CHUNK_BYTES = 2**20

JSON_END = "\n}\n"
_SEALED_JSON = re.compile(rb',\n "checksum": "(.{64})"\n}\n\Z', re.DOTALL)
_SEALED_JSON_BYTES = 84
"""Length of the end of a sealed document."""
_PLACED_JSON = re.compile(rb',\n "file": "([^"\n]*)"\n}\n\Z')
_PLACED_JSON_BYTES = 1024
"""Upper bound on the length of the line with a document's path."""


class Unsealed(NamedTuple):
    """A document without its seal."""

    body: bytes
    is_whole: bool
    """Whether it matches its checksum; True without one."""
    place: str | None
    """Its path within the store; None if it states none."""
    is_sealed: bool
    """Whether it has a checksum."""


def of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_file(path: Path) -> str:
    """SHA-256 of a regular file. Raises IrregularFileError for any other, which may have no end."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed_json(text: str, place: str) -> str:
    """An indented JSON object with its path within the store and the checksum of its text as the last fields."""
    body = f'{text.removesuffix(JSON_END)},\n "file": "{place}"{JSON_END}'
    checksum = hashlib.sha256(body.encode()).hexdigest()
    return f'{body.removesuffix(JSON_END)},\n "checksum": "{checksum}"{JSON_END}'


def unsealed_json(content: bytes) -> Unsealed:
    """The object without the fields that seal it."""
    found = _SEALED_JSON.search(content, max(0, len(content) - _SEALED_JSON_BYTES))
    body = content if found is None else content[: found.start()] + JSON_END.encode()
    is_whole = found is None or hashlib.sha256(body).hexdigest().encode() == found[1]
    placed = _PLACED_JSON.search(body, max(0, len(body) - _PLACED_JSON_BYTES))
    if placed is not None:
        rest, place = body[: placed.start()] + JSON_END.encode(), placed[1].decode(errors="replace")
    else:
        rest, place = (body, None) if found else _edited_json(body)
    return Unsealed(rest, is_whole, place, found is not None)


def _edited_json(body: bytes) -> tuple[bytes, str | None]:
    """Body and path of a document without a checksum, which an editor may have reformatted."""
    if b'"file"' not in body:
        return body, None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return body, None
    place = fields.pop("file", None) if isinstance(fields, dict) else None
    return (json.dumps(fields).encode(), place) if isinstance(place, str) else (body, None)


def seal(path: Path, owner: str) -> None:
    """Append the checksum of a file's content. Formats that are read from their end, such as zip, tolerate it."""
    with path.open("r+b") as file:
        found = _digest(file, path.stat().st_size, owner)
        file.write(SEAL + found)


def is_whole(path: Path, owner: str) -> bool:
    """Whether a file matches its seal for this owner. False for a file without a seal: its end is lost."""
    with path.open("rb") as file:
        return is_whole_file(file, owner)


def is_whole_file(file: BinaryIO, owner: str) -> bool:
    """`is_whole` for an open file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - SEAL_BYTES))
    end = file.read()
    file.seek(0)
    return end.startswith(SEAL) and _digest(file, size - SEAL_BYTES, owner) == end[len(SEAL) :]


def _digest(file: BinaryIO, left: int, owner: str) -> bytes:
    """SHA-256 of an owner's name and the next `left` bytes."""
    found = hashlib.sha256(owner.encode())
    while left and (chunk := file.read(min(left, CHUNK_BYTES))):
        found.update(chunk)
        left -= len(chunk)
    return found.digest()
