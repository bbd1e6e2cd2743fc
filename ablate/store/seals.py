"""Logs whose lines are sealed: a seal at the end of each covers its text, all lines before it, and whose log it is.

    seal₀ = H(owner)        sealₙ = H(sealₙ₋₁ ‖ lineₙ)        H: the first 16 hex digits of SHA-256

So a changed digit, a lost line and a log of another owner are all noticed. Lines of versions before this have no seal;
the first sealed line covers them too. Two writers may append at once: both lines then continue from one seal, so a line
may continue from any seal before it.

The end of a log can be lost without breaking the chain. Whatever must notice that keeps the seal of the last line that
it knew (`SealedLog.lacks`).
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

from ablate.store.files import StoreError, check_regular, pass_fence, read_regular

_SEAL = re.compile(rb',"seal":"([0-9a-f]{16})"\}\Z')
_END_BYTES = 2**16
"""Longer than nearly every line."""


class Chain:
    """The seals of a log so far."""

    def __init__(self, owner: str) -> None:
        self.last = _hash(owner.encode())
        self.seals = {self.last}
        self._continued = {self.last}
        """Seals that a line may continue from: of sealed lines, and of the last one before those."""
        self.has_sealed = False
        """Whether a line had a seal: those after it must have one."""

    def body(self, line: bytes) -> bytes | None:
        """A line without its seal, as it was appended; None where it is not what was sealed."""
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
    """A log of JSON objects. `owner` names whose it is; `remedy` says what to do about a line that changed."""

    path: Path
    owner: str
    remedy: str

    def content(self) -> bytes:
        """Nothing where there is no file."""
        try:
            return read_regular(self.path)
        except FileNotFoundError:
            return b""

    def bodies(self) -> list[bytes]:
        """The whole lines without their seals. Raises StoreError where one is not what was sealed."""
        return self.read()[1]

    def read(self) -> tuple[Chain, list[bytes]]:
        """The chain at the end of the log, and the bodies of its lines. Raises StoreError."""
        chain, bodies = Chain(self.owner), []
        for number, line in enumerate(self.whole(self.content()).split(b"\n")[:-1], start=1):
            bodies.append(self.checked(chain, line, number))
        return chain, bodies

    def checked(self, chain: Chain, line: bytes, number: int) -> bytes:
        """The body of a line after those of the chain. Raises StoreError where it is not what was sealed."""
        body = chain.body(line)
        if body is None:
            raise StoreError(f"{self.path}:{number}: its checksum does not match: {self.remedy}")
        return body

    def parsed(self, body: bytes, number: int) -> dict[str, Any]:
        """A line's object. Raises StoreError: a line of versions before this is not sealed."""
        if not is_object(body):
            raise StoreError(f"{self.path}:{number}: expected a JSON object: {self.remedy}")
        found: dict[str, Any] = json.loads(body)
        return found

    def whole(self, content: bytes) -> bytes:
        """Whole lines: a kill can tear the last one. Raises StoreError where only the end of the line has changed."""
        size = content.rfind(b"\n") + 1
        if is_object(content[size:-1]):
            raise StoreError(f"{self.path}: its last line does not end as it was written: {self.remedy}")
        return content[:size]

    def last_seal(self) -> str | None:
        """Seal of the last line, which a file keeps that rests on the log as it is now; None for an empty log."""
        try:
            check_regular(self.path)
            with self.path.open("rb", buffering=0) as file:
                return self._at_end(file).last.decode() if os.fstat(file.fileno()).st_size else None
        except FileNotFoundError:
            return None

    def lacks(self, seal: str) -> bool:
        """Whether a line that had this seal is gone."""
        return seal.encode() not in self.read()[0].seals

    def add(self, bodies: Iterable[bytes], sync: bool = False) -> None:
        """Append JSON objects, all in one write, after cutting a torn line. A write that fails is taken back: a full
        disk leaves the log as it was."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            check_regular(self.path)
        with self.path.open("a+b", buffering=0) as file:
            pass_fence(self.path)  # after opening: whoever takes a run over replaces the file
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                file.seek(0)
                size = len(self.whole(file.read()))
                file.truncate(size)
            chain = self._at_end(file)
            try:
                _write_all(file, b"".join(map(chain.sealed, bodies)))
                if sync:
                    os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size)
                error.filename = error.filename or str(self.path)
                raise

    def _at_end(self, file: FileIO) -> Chain:
        """The chain after the last line. Where that has no seal, all lines are read."""
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


def _write_all(file: FileIO, content: bytes) -> None:
    """A disk that gets full may take a part: writing the rest says why."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:16].encode()
