"""Archives that carry a part of a store: a zip file of documents, logs and weights, and a manifest with checksums.

An archive is untrusted input. It is unpacked into an empty folder, file by file, and only files with the names of
portable documents are accepted: no code, no pickle, no page, no link. Reading stops at the declared sizes, which are
bounded. The same files make the same archive, byte for byte.
"""

from __future__ import annotations

import errno
import hashlib
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from store import checksum, jsonfile
from store.checksum import CHUNK_BYTES
from store.documents import Document, Part
from store.documents._document import Bytes
from store.files import StoreError, check_regular, replacing

MANIFEST = "manifest.json"
MODEL_FILES = ("spec.json", "weights.safetensors", "adapters.safetensors", "tokenizer.json", "sums.json")
_RUN, _REQUEST, _NAME = "[0-9a-f]{8,64}", "[0-9A-Za-z_]{1,64}", r"(?!\.)[A-Za-z0-9_.~%-]{1,250}"
_DOCUMENTS = rf"run\.json|result\.json|measure-{_REQUEST}\.json|evals-{_REQUEST}\.json"
_LOGS = rf"metrics\.ndjson|probes\.ndjson|losses\.ndjson|evals-{_REQUEST}\.samples\.ndjson"
_TRAVELS = re.compile(
    rf"{_RUN}/({_DOCUMENTS}|{_LOGS}|model/({'|'.join(map(re.escape, MODEL_FILES))}))"
    rf"|studies/{_NAME}/(study\.json|judged\.json|registered\.ndjson|costs-{_REQUEST}\.json)"
    rf"|ledger/{_NAME}\.ndjson"
    rf"|described/{_RUN}/(meta\.json|references-[0-9]{{1,12}}-[0-9]{{1,12}}\.json)"
)
"""Paths within a store that an archive may contain."""
_OF_FILE_MANAGERS = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|\._[^/]*$|Thumbs\.db$|desktop\.ini$)|/$", re.IGNORECASE)
"""Folders, and files that file managers add when somebody zips an unpacked archive again: they are left out."""
MOST_FILES = 200_000
MOST_BYTES = {".json": 64 * 2**20, ".ndjson": 2**30}
"""Largest documents and logs, in bytes; weights are bounded by the total alone."""
TOTAL_BYTES = 16 * 2**30
"""Default bound of an archive's uncompressed size."""
FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every file in an archive, for reproducible bytes: the earliest that zip can store."""
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error, OverflowError)
"""Errors of zipfile for a file that is no zip, is damaged or encrypted, or uses another compression method."""

Content = Path | bytes


class PackedFile(Part):
    """A file of an archive."""

    bytes: Bytes
    """Its size, uncompressed."""
    sha256: str
    """Checksum of its content."""


class PackDocument(Document):
    """`manifest.json`: the contents of an archive."""

    ablate: str
    """Version of this project that wrote it."""
    studies: tuple[str, ...]
    """Names of the study folders."""
    runs: tuple[str, ...]
    """Digests of the runs."""
    weights: bool
    """Whether it has the trained models."""
    files: dict[str, PackedFile]
    """All other files, by their path within the store."""


def travels(place: str) -> bool:
    """Whether an archive may contain a file at this path of a store."""
    return _TRAVELS.fullmatch(place) is not None


def write(path: Path, files: Mapping[str, Content], studies: Sequence[str], runs: Sequence[str], version: str) -> str:
    """Write an archive of these files, keyed by path within the store, and return its SHA-256."""
    found = {place: _described(files[place]) for place in sorted(files)}
    weights = any("/model/" in place for place in files)
    manifest = PackDocument(ablate=version, studies=tuple(studies), runs=tuple(runs), weights=weights, files=found)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, MANIFEST, jsonfile.sealed(path, manifest, MANIFEST).encode())
        for place in found:
            _add(archive, place, files[place])
    return checksum.of_file(path)


def _described(content: Content) -> PackedFile:
    if isinstance(content, bytes):
        return PackedFile(bytes=len(content), sha256=checksum.of(content))
    return PackedFile(bytes=content.stat().st_size, sha256=checksum.of_file(content))


def _add(archive: zipfile.ZipFile, place: str, content: Content) -> None:
    info = zipfile.ZipInfo(place, FIRST_DATE)
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    is_weights = place.endswith(".safetensors")  # weights hardly compress
    info.compress_type = zipfile.ZIP_STORED if is_weights else zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=is_weights) as target:
        if isinstance(content, bytes):
            target.write(content)
            return
        with content.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                target.write(chunk)


def unpack(path: Path, folder: Path, most_bytes: int = TOTAL_BYTES) -> PackDocument:
    """Unpack an archive into an empty folder, and return its manifest.

    Raises StoreError if it is no archive, is damaged, exceeds a bound, or contains a file that `travels` refuses.
    """
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, most_bytes)
            _extract(archive, members.pop(MANIFEST), folder / MANIFEST)
            manifest = jsonfile.read(folder / MANIFEST, PackDocument, "pack it again")
            if manifest is None:
                raise StoreError(f"{MANIFEST} is half-written")
            if odd := members.keys() ^ manifest.files.keys():
                raise StoreError(f"archive and manifest differ: {_shown(min(odd))} is in only one of them")
            for place, info in members.items():
                if _extract(archive, info, folder / place) != manifest.files[place].sha256:
                    raise StoreError(f"{place} has changed since it was packed")
            return manifest
    except (*DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: a seek to a damaged offset
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"not an `ablate pack` archive, or damaged: {reason}") from error


@contextmanager
def named(path: Path, folder: Path) -> Iterator[None]:
    """Re-raise each StoreError with the archive's path in place of the folder that it is unpacked to."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{path} cannot be merged: {str(error).replace(f'{folder}/', '')}") from error


@contextmanager
def named_on_disk(path: Path, folder: Path) -> Iterator[None]:
    """Re-raise errors of files in the folder, such as a full disk, with the names of the archive and its place."""
    try:
        yield
    except OSError as error:
        if str(error.filename or folder).startswith(str(folder)):
            error.filename = f"{path}, unpacked in {folder.parent}"
        raise


def _members(archive: zipfile.ZipFile, most_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """Members by path within the store. Raises StoreError before anything is unpacked."""
    if len(archive.infolist()) > MOST_FILES:
        raise StoreError(f"it has {len(archive.infolist()):,} files, above the limit of {MOST_FILES:,}")
    members = [info for info in archive.infolist() if not _OF_FILE_MANAGERS.search(info.filename)]
    paths = [info.filename for info in members]
    inner = (path for path in paths if path.count("/") == 1 and path.endswith(f"/{MANIFEST}"))
    top = next(inner, MANIFEST).removesuffix(MANIFEST)
    # An archive that was unpacked and zipped again may have all files in one folder.
    is_wrapped = MANIFEST not in paths and all(path.startswith(top) for path in paths)
    names = [path.removeprefix(top) for path in paths] if is_wrapped else paths
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise StoreError(f"it contains {_shown(twice)} twice")
    for name, info in zip(names, members, strict=True):
        _check_member(name, info)
    total = sum(info.file_size for info in members)
    if total > most_bytes:
        raise StoreError(
            f"it unpacks to {total:,} bytes, above the limit of {most_bytes:,}: raise --limit if you expect that"
        )
    found = dict(zip(names, members, strict=True))
    if MANIFEST not in found:
        raise StoreError(f"not an `ablate pack` archive: it has no {MANIFEST}")
    return found


def _check_member(name: str, info: zipfile.ZipInfo) -> None:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise StoreError(f"{_shown(name)} is not a regular file")
    if name != MANIFEST and not travels(name):
        raise StoreError(f"{_shown(name)} is not allowed in an archive: only documents, logs and safetensors are")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise StoreError(f"{name} uses an unsupported compression method: only stored and deflate are allowed")
    most = MOST_BYTES.get(Path(name).suffix)
    if most is not None and info.file_size > most:
        raise StoreError(f"{name} has {info.file_size:,} bytes, above the limit of {most:,}")


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> str:
    """Write a member to a new file, and return its SHA-256. zipfile reads no more than the declared size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    with archive.open(info) as source, target.open("xb") as file:
        while chunk := source.read(CHUNK_BYTES):
            found.update(chunk)
            file.write(chunk)
    return found.hexdigest()


def _shown(name: str) -> str:
    """An untrusted name, escaped and shortened for a message."""
    return repr(name if len(name) <= jsonfile.LONGEST else f"{name[: jsonfile.LONGEST]}…")
