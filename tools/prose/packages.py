"""Files of a downloaded package: .deb, .whl or .tgz."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60


def files(package: Path) -> dict[str, bytes]:
    """Contents of a package by path, without the prefixes `./` and npm's `package/`."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    content = package.read_bytes()
    if content.startswith(AR_MAGIC):
        content = next(member for name, member in _ar(content) if name.startswith("data.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member.name.removeprefix("./").removeprefix("package/"): file.read()
            for member in archive
            if (file := archive.extractfile(member) if member.isfile() else None)
        }


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Members of an ar archive, the format of a .deb: a header of 60 bytes each, then the data, at even offsets."""
    at = len(AR_MAGIC)
    while at < len(content):
        header = content[at : at + AR_HEADER]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), content[at + AR_HEADER : at + AR_HEADER + size]
        at += AR_HEADER + size + size % 2
