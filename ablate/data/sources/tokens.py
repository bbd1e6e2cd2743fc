"""Text that is already tokenised: nanoGPT's `.bin`, `.npy`, Megatron's `.idx/.bin`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.data.paths import matches
from ablate.data.sources import TextSource
from ablate.data.sources.files import Paths
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bpe import BpeTokenizer
from store.errors import DataError
from store.files import check_regular, read_regular
from zoo.settings.axis import Choice


class TokensSource(TextSource):
    """Files of token ids, decoded to text, which is then split, tokenised and scored like any other.

    A `.bin` beside an `.idx` of the same name is Megatron's; the index gives its documents. Other `.bin` files are
    nanoGPT's, without a header, or those of llm.c and modded-nanogpt, with one; `.npy` files are numpy arrays. In these
    three, documents end with the tokenizer's end of text. Tokenising the text again with the tokenizer that made the
    files gives the same ids, if the files have the encoding that the tokenizer itself would choose.
    """

    source: Literal["tokens"] = "tokens"
    paths: Annotated[Paths, Field(min_length=1, strict=False)]
    """Globs of `.bin` and `.npy` files, or folders of them."""
    encoder: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] | None = None
    """Tokenizer that made the files; null if it is `tokenizer`."""
    dtype: Literal["uint16", "uint32", "int64"] = "uint16"
    """Type of the ids in `.bin` files that have neither a header nor an index. A type that cannot be right is an
    error."""
    validation_paths: Annotated[Paths, Field(strict=False)] = ()
    """Held-out files, instead of holding out a share of `paths`."""

    def tokenised_by(self, tokenizer: TokenizerSpec) -> Self:
        return self.model_copy(update={"tokenizer": tokenizer, "encoder": self.encoder or self.tokenizer})

    def documents(self, base: Path) -> Iterator[str]:
        return self._read(self.paths, base)

    def held_out(self, base: Path) -> Iterator[str] | None:
        return self._read(self.validation_paths, base) if self.validation_paths else None

    def _read(self, patterns: tuple[str, ...], base: Path) -> Iterator[str]:
        made_by = self.encoder or self.tokenizer
        if isinstance(made_by, BpeTokenizer):
            raise DataError("data.encoder: name the tokenizer that made the files; bpe is trained on the text itself")
        maker = made_by.encoder((), base)
        many = maker.tokenizer.get_vocab_size(with_added_tokens=True)
        found = matches(patterns, base, lambda path: path.suffix in {".bin", ".npy"})
        for path in dict.fromkeys(path.with_suffix(".bin") if path.suffix == ".idx" else path for path in found):
            for ids in documents(path, self.dtype, maker.eos, many):
                if len(ids) and not 0 <= ids.min() <= ids.max() < many:
                    wrong = ids.min() if ids.min() < 0 else ids.max()
                    sizes = f"the id {wrong:,}, but the tokenizer has {many:,} tokens"
                    raise DataError(f"{path} has {sizes}: set data.encoder to the one that made the file")
                yield maker.tokenizer.decode(ids.tolist(), skip_special_tokens=False)


Ids = NDArray[np.int64]

HEADER_BYTES = 1024
"""256 int32: a magic number, a version, the number of tokens, and zeros (llm.c, dev/data/data_common.py)."""
HEADED = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
"""Type of the ids, keyed by magic number and version: GPT-2 and Llama 3."""
MEGATRON = b"MMIDIDX\x00\x00"
MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Types by code (megatron/core/datasets/indexed_dataset.py); codes 6 and 7 are floats, which ids never are."""
NUMPY = b"\x93NUMPY"
BARE_TYPES = ("int64", "uint32", "uint16")
"""Types of ids in files without a header, widest first."""
AT_ONCE = 1 << 22


def documents(path: Path, dtype: str, eos: int, vocabulary: int) -> Iterator[Ids]:
    """The ids of each document, without the final `eos`.

    path: a `.bin` or `.npy`. Documents are those of an `.idx` of the same name, if there is one; else they end with
    `eos`. dtype: type of the ids in a file without a header, which must be below `vocabulary`.

    Raises:
        DataError: a file cannot be read, or contradicts its header or index.
    """
    try:
        check_regular(path)
        index = path.with_suffix(".idx")
        found = _indexed(path, index) if index.exists() else _cut(_ids(path, dtype, vocabulary), eos)
        for each in found:
            ids = np.asarray(each, dtype=np.int64)
            yield ids[:-1] if len(ids) and ids[-1] == eos else ids
    except DataError:
        raise
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _ids(path: Path, dtype: str, vocabulary: int) -> NDArray[Any]:
    """The ids of a whole file, memory-mapped."""
    with path.open("rb") as file:
        head = file.read(12)
    magic = struct.unpack("<3i", head) if len(head) == 12 else (0, 0, 0)
    known = HEADED.get((magic[0], magic[1]))
    if head.startswith(NUMPY):
        array: NDArray[Any] = np.load(path, mmap_mode="r")
        if not np.issubdtype(array.dtype, np.integer):
            raise DataError(f"{path} must hold whole numbers, not {array.dtype}")
        return array.reshape(-1)
    if known is None:
        _check_type(path, dtype, vocabulary)
        return _mapped(path, dtype, 0)
    found = _mapped(path, known, HEADER_BYTES)
    if len(found) != magic[2]:
        raise DataError(f"{path}: its header says {magic[2]:,} tokens, but it has {len(found):,}")
    return found


def _check_type(path: Path, dtype: str, vocabulary: int) -> None:
    """Raise DataError if the ids at the start of a file without a header are of another type.

    Wide ids read as a narrow type are small numbers, every second of them (almost) always 0, so they fit the vocabulary
    too. Narrow ids read in pairs as a wide type never all fit. Hence the widest type that fits is right.
    """
    fitting = [name for name in BARE_TYPES if _fits(path, name, vocabulary)]
    # Bytes that are all 0 fit every type.
    if fitting and fitting[0] != dtype and not (dtype in fitting and not np.fromfile(path, np.uint8, AT_ONCE).any()):
        raise DataError(f"{path} holds ids of type {fitting[0]}, not {dtype}: set data.dtype to {fitting[0]}")


def _fits(path: Path, dtype: str, vocabulary: int) -> bool:
    """Whether the first ids, read as this type, are all in the vocabulary."""
    ids = np.fromfile(path, dtype, AT_ONCE)
    whole = path.stat().st_size % ids.itemsize == 0
    return whole and len(ids) > 0 and bool(ids.min() >= 0 and ids.max() < vocabulary)


def _mapped(path: Path, dtype: str, offset: int) -> NDArray[Any]:
    size = path.stat().st_size - offset
    if size % np.dtype(dtype).itemsize:
        raise DataError(
            f"{path} does not hold a whole number of {np.dtype(dtype).name} ids: truncated, or a wrong data.dtype"
        )
    if size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def _cut(ids: NDArray[Any], eos: int) -> Iterator[NDArray[Any]]:
    """The stretches between `eos`, read in blocks; the last one need not end with `eos`."""
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
    """Documents of a Megatron index, which gives each sequence's length in ids and offset in bytes, and each document's
    range of sequences."""
    content = read_regular(index)
    if not content.startswith(MEGATRON):
        raise DataError(f"{index} is not a Megatron index: it does not begin with MMIDIDX")
    version, code, sequences, many = struct.unpack_from("<QBQQ", content, len(MEGATRON))
    if version != 1 or code not in MEGATRON_TYPES:
        raise DataError(f"{index} has version {version} and type {code}: only version 1 with integers can be read")
    start = len(MEGATRON) + struct.calcsize("<QBQQ")
    lengths = np.frombuffer(content, "<i4", sequences, start)
    offsets = np.frombuffer(content, "<i8", sequences, start + lengths.nbytes)
    bounds = np.frombuffer(content, "<i8", many, start + lengths.nbytes + offsets.nbytes)
    dtype = np.dtype(MEGATRON_TYPES[code])
    ids = _mapped(path, dtype.str, 0)
    if min(lengths.min(initial=0), offsets.min(initial=0)) < 0 or (offsets % dtype.itemsize).any():
        raise DataError(f"{index} is damaged: a sequence has a negative length or begins inside an id")
    if list(bounds[:1]) != [0] or bounds[-1] != sequences or (np.diff(bounds) < 0).any():
        raise DataError(f"{index} is damaged: its documents do not cover its {sequences:,} sequences in order")
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        begins = (offsets[first:last] // dtype.itemsize).tolist()
        parts = [ids[at : at + size] for at, size in zip(begins, lengths[first:last].tolist(), strict=True)]
        if sum(map(len, parts)) != lengths[first:last].sum():
            raise DataError(f"{path} is shorter than {index.name} says")
        yield np.concatenate([*parts, np.empty(0, dtype)])
