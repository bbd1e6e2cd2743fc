"""SHA-256 of files and of texts, and seals: the checksum of a file's content at its own end.

A sealed file is replaced together with its checksum by one rename, so no kill parts them. What bears no seal, as a
document written by hand, is not checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

SEAL = b"\nsha256 "
"""Bytes before the checksum at the end of a file that is not text."""
SEAL_BYTES = len(SEAL) + 32
CHUNK_BYTES = 2**20

JSON_END = "\n}\n"
_SEALED_JSON = re.compile(rb',\n "checksum": "(.{64})"\n}\n\Z', re.DOTALL)
_SEALED_JSON_BYTES = 84
"""Length of the end of a sealed document."""


def of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed_json(text: str) -> str:
    """An indented JSON object with the checksum of its text as the last field."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f'{text.removesuffix(JSON_END)},\n "checksum": "{checksum}"{JSON_END}'


def unsealed_json(content: bytes) -> tuple[bytes, bool]:
    """The object without its checksum, and whether it is what was sealed."""
    found = _SEALED_JSON.search(content, max(0, len(content) - _SEALED_JSON_BYTES))
    if found is None:
        return content, True
    body = content[: found.start()] + JSON_END.encode()
    return body, hashlib.sha256(body).hexdigest().encode() == found[1]


def seal(path: Path) -> None:
    """Append the checksum of what a file contains. Formats that are read from their end, as zip, do not mind."""
    checksum = bytes.fromhex(of_file(path))
    with path.open("ab") as file:
        file.write(SEAL + checksum)


def is_whole(path: Path) -> bool:
    """Whether a file is what was sealed; True for one without a seal."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SEAL_BYTES))
        end = file.read()
        if not end.startswith(SEAL):
            return True
        file.seek(0)
        found, left = hashlib.sha256(), size - SEAL_BYTES
        while left and (chunk := file.read(min(left, CHUNK_BYTES))):
            found.update(chunk)
            left -= len(chunk)
    return found.digest() == end[len(SEAL) :]
