"""Files of token ids: nanoGPT's bare `.bin`, that of llm.c and modded-nanogpt with a header, Megatron's `.idx/.bin`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError

Ids = NDArray[np.int64]

HEADER_BYTES = 1024
"""256 int32: a magic number, a version, the number of tokens, and zeros (llm.c, dev/data/data_common.py)."""
HEADED = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
"""Magic number and version, and the type of the ids: of GPT-2, and of Llama 3."""
MEGATRON = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Types by their codes (megatron/core/datasets/indexed_dataset.py); 6 and 7 are floats, which ids never have."""
AT_ONCE = 1 << 22


def documents(path: Path, dtype: str, eos: int) -> Iterator[Ids]:
    """The ids of each document, without what ends it.

    path: a `.bin`; with an `.idx` of the same name beside it the documents are those of the index, and without one they
    end with `eos`. dtype: of ids in a file without a header.

    Raises:
        DataError: a file cannot be read, or is not what it begins like.
    """
    try:
        index = path.with_suffix(".idx")
        found = _indexed(path, index) if index.exists() else _cut(_ids(path, dtype), eos)
        for ids in found:
            yield _without_end(np.asarray(ids, dtype=np.int64), eos)
    except (OSError, ValueError, struct.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _without_end(ids: Ids, eos: int) -> Ids:
    return ids[:-1] if len(ids) and ids[-1] == eos else ids


def _ids(path: Path, dtype: str) -> NDArray[Any]:
    """Memory-map a whole file."""
    with path.open("rb") as file:
        head = file.read(12)
    magic = struct.unpack("<3i", head) if len(head) == 12 else (0, 0, 0)
    known = HEADED.get((magic[0], magic[1]))
    if known is None:
        return _mapped(path, dtype, 0)
    found = _mapped(path, known, HEADER_BYTES)
    if len(found) != magic[2]:
        raise DataError(f"{path}: its header says {magic[2]:,} tokens, and it has {len(found):,}")
    return found


def _mapped(path: Path, dtype: str, offset: int) -> NDArray[Any]:
    size = path.stat().st_size - offset
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} does not hold whole ids of {np.dtype(dtype).name}: set data.dtype")
    if size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def _cut(ids: NDArray[Any], eos: int) -> Iterator[NDArray[Any]]:
    """Between `eos`, some at a time; the last stretch need not end with one."""
    rest: list[NDArray[Any]] = []
    for start in range(0, len(ids), AT_ONCE):
        block = ids[start : start + AT_ONCE]
        ends = np.flatnonzero(block == eos)
        begin = 0
        for end in ends.tolist():
            yield np.concatenate([*rest, block[begin:end]])
            rest, begin = [], end + 1
        rest.append(block[begin:])
    yield np.concatenate([*rest, np.empty(0, ids.dtype)])


def _indexed(path: Path, index: Path) -> Iterator[NDArray[Any]]:
    """Documents by an index: sequences by their lengths in ids and their offsets in bytes, and documents of several
    sequences."""
    content = index.read_bytes()
    if not content.startswith(MEGATRON):
        raise DataError(f"{index} is no index of Megatron: it does not begin with MMIDIDX")
    version, code, sequences, many = struct.unpack_from("<QBQQ", content, len(MEGATRON))
    if version != 1 or code not in MEGATRON_TYPES:
        raise DataError(f"{index} has version {version} and type {code}: only version 1 with whole numbers can be read")
    start = len(MEGATRON) + struct.calcsize("<QBQQ")
    lengths = np.frombuffer(content, "<i4", sequences, start)
    offsets = np.frombuffer(content, "<i8", sequences, start + lengths.nbytes)
    bounds = np.frombuffer(content, "<i8", many, start + lengths.nbytes + offsets.nbytes)
    dtype = np.dtype(MEGATRON_TYPES[code])
    ids = _mapped(path, dtype.str, 0)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        begins = (offsets[first:last] // dtype.itemsize).tolist()
        parts = [ids[at : at + size] for at, size in zip(begins, lengths[first:last].tolist(), strict=True)]
        if sum(map(len, parts)) != lengths[first:last].sum():
            raise DataError(f"{path} is shorter than {index.name} says")
        yield np.concatenate([*parts, np.empty(0, dtype)])
