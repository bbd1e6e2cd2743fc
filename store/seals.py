"""Logs whose lines form a hash chain: the seal at the end of a line covers its text, all lines before it, and the log's
owner.

    seal₀ = H(owner)        sealₙ = H(sealₙ₋₁ ‖ lineₙ)        H: the first 16 hex digits of SHA-256

So a changed digit, a lost line and a log of another owner are all noticed. Lines of earlier versions have no seal; the
first sealed line covers them too. Two writers may append at once: both lines then continue from one seal, so a line
may continue from any earlier sealed line.

Losing the end of a log does not break the chain. A file that must notice this stores the seal of the last line that it
refers to (`SealedLog.lacks`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from store.files import StoreError, check_regular, one_at_a_time, pass_fence, read_regular

_SEAL = re.compile(rb',"seal":"([0-9a-f]{16})"\}\Z')
_END_BYTES = 2**16
"""Bytes read from the end of a log: more than nearly every line has."""


class Chain:
    """The seals of a log so far."""

    def __init__(self, owner: str) -> None:
        self.last = _hash(owner.encode())
        self.seals = {self.last}
        self._continued = {self.last}
        """Seals that a line may continue from: of sealed lines, and of the last unsealed line before them."""
        self.has_sealed = False
        """Whether a line had a seal: then every later line must have one."""

    def body(self, line: bytes) -> bytes | None:
        """A line without its seal, as it was appended; None if its seal does not match, or is missing."""
        found = _SEAL.search(line)
        if found is None:
            if self.has_sealed:
                return None
            self._add(_hash(self.last + line))
            self._continued = {self.last}
            return line
        self.has_sealed = True
        body, seal = line[: found.start()] + b"}", found[1]
        if _hash(self.last + body) != seal and all(_hash(before + body) != seal for before in self._continued):
            return None
        self._add(seal)
        return body

    def sealed(self, body: bytes) -> bytes:
        """The line to append: a JSON object with its seal as the last field."""
        self._add(_hash(self.last + body))
        return body[:-1] + b',"seal":"' + self.last + b'"}\n'

    def _add(self, seal: bytes) -> None:
        self.last = seal
        self.seals.add(seal)
        self._continued.add(seal)


@dataclass(frozen=True)
class SealedLog:
    """A log of JSON objects. `owner` is part of its seals; messages suggest `remedy` for a damaged line."""

    path: Path
    owner: str
    remedy: str

    def content(self) -> bytes:
        """The log's bytes; empty if there is no file."""
        try:
            return read_regular(self.path)
        except FileNotFoundError:
            return b""

    def bodies(self) -> list[bytes]:
        """The complete lines without their seals. Raises StoreError if one is damaged."""
        return self.read()[1]

    def read(self) -> tuple[Chain, list[bytes]]:
        """The chain at the end of the log, and the bodies of its lines. Raises StoreError if one is damaged."""
        chain, bodies = Chain(self.owner), []
        for number, line in enumerate(self.whole(self.content()).split(b"\n")[:-1], start=1):
            bodies.append(self.checked(chain, line, number))
        return chain, bodies

    def checked(self, chain: Chain, line: bytes, number: int) -> bytes:
        """The body of the line that follows the chain. Raises StoreError if it is damaged."""
        body = chain.body(line)
        if body is None:
            raise StoreError(f"{self.path}:{number}: its checksum does not match: {self.remedy}")
        return body

    def parsed(self, body: bytes, number: int) -> dict[str, Any]:
        """A line's JSON object. Raises StoreError if it is none, as a damaged unsealed line of an earlier version."""
        if not is_object(body):
            raise StoreError(f"{self.path}:{number}: expected a JSON object: {self.remedy}")
        found: dict[str, Any] = json.loads(body)
        return found

    def whole(self, content: bytes) -> bytes:
        """The complete lines: a kill can tear the last one. Raises StoreError if only its line end has changed."""
        size = content.rfind(b"\n") + 1
        if is_object(content[size:-1]):
            raise StoreError(f"{self.path}: the newline of its last line is damaged: {self.remedy}")
        return content[:size]

    def last_seal(self) -> str | None:
        """Seal of the last line, for files that refer to the log's present state; None for an empty log."""
        try:
            check_regular(self.path)
            with self.path.open("rb", buffering=0) as file:
                return self._at_end(file).last.decode() if os.fstat(file.fileno()).st_size else None
        except FileNotFoundError:
            return None

    def lacks(self, seal: str) -> bool:
        """Whether no line has this seal. Raises StoreError if a line is damaged."""
        return seal.encode() not in self.read()[0].seals

    def add(self, bodies: Iterable[bytes], sync: bool = False) -> None:
        """Append JSON objects, after cutting off a line that a kill tore. A write that fails, as on a full disk, is
        undone. Writers take turns, since the unfinished line of another one looks like a torn line. sync: flush the log
        to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            check_regular(self.path)
        with self.path.open("a+b", buffering=0) as file, one_at_a_time(file):
            pass_fence(self.path)  # after opening: a process that takes the run over replaces the file
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                file.seek(0)
                size = len(self.whole(file.read()))
                file.truncate(size)
            chain = self._at_end(file)
            try:
                rest = memoryview(b"".join(map(chain.sealed, bodies)))
                while rest:  # a disk that fills up takes a part, and the next write raises the error
                    rest = rest[file.write(rest) :]
                if sync:
                    os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size)
                error.filename = error.filename or str(self.path)
                raise

    def _at_end(self, file: FileIO) -> Chain:
        """The chain after the last line. If that line has no seal, all lines are read."""
        chain = Chain(self.owner)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_BYTES))
        found = _SEAL.search(file.read()[:-1])
        if found is not None:
            chain.last = found[1]
            return chain
        file.seek(0)
        for line in file.read().split(b"\n")[:-1]:
            chain.body(line)
        return chain


def unsealed(line: bytes) -> bytes:
    """A line without its seal, unchecked."""
    found = _SEAL.search(line)
    return line if found is None else line[: found.start()] + b"}"


def is_object(line: bytes) -> bool:
    """Whether a line is a whole JSON object."""
    try:
        return isinstance(from_json(line, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:16].encode()
