"""Files as other people write them: converted exactly, or refused in one line that names the file and the remedy."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard

from ablate.data import DataError, identify, parse
from ablate.data.sources import TextSource

DOCUMENTS = ["one\nline", 'zwei – "drei"', "四, 五\t六"]
ROWS = [{"id": i, "text": text, "meta": {"source": "c4"}} for i, text in enumerate(DOCUMENTS)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def read(path: Path, **spec: object) -> list[str]:
    found = parse({"source": "files", "paths": str(path), **spec})
    assert isinstance(found, TextSource)
    return list(found.documents(Path()))


def table(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    rows = csv.writer(out, delimiter=delimiter)
    rows.writerows([("id", "text"), *((row["id"], row["text"]) for row in ROWS)])
    return out.getvalue().encode()


def utf16(text: str) -> bytes:
    return text.encode("utf-16")


JSON = {
    "c4-train.00000-of-01024.json.gz": gzip.compress(LINES.encode()),
    "dolma.json": LINES.encode(),
    "NAME.JSONL": LINES.encode(),
    "without_suffix": LINES.encode(),
    "lines.txt": LINES.encode(),
    "packed_without_suffix": gzip.compress(LINES.encode()),
    "frames_without_suffix": zstandard.compress(LINES.encode()),
    "array.json": json.dumps(ROWS).encode(),
    "indented.json": json.dumps(ROWS, indent=2).encode(),
    "indented.jsonl": "\n".join(json.dumps(row, indent=1) for row in ROWS).encode(),
    "mark.jsonl": b"\xef\xbb\xbf" + LINES.encode(),
    "wide.jsonl": utf16(LINES),
    "old_mac.jsonl": LINES.replace("\n", "\r").encode(),
    "windows.jsonl": LINES.replace("\n", "\r\n").encode(),
    "null.jsonl": (LINES + '{"text": null}\n').encode(),
    "comma.csv": table(","),
    "semicolon.csv": table(";"),
    "mark.csv": b"\xef\xbb\xbf" + table(","),
    "packed.CSV.gz": gzip.compress(table(",")),
    "tab.tsv": table("\t"),
}


@pytest.mark.parametrize("name", JSON)
def test_what_has_columns_is_read_by_its_content(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(JSON[name])
    assert read(tmp_path / name) == DOCUMENTS


def test_tables_are_those_of_polars(tmp_path: Path) -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices('ab"\n,; é', k=rng.randint(1, 300_000 if i == 7 else 30))) for i in range(200)]
    pl.DataFrame({"content": texts, "n": range(200)}).write_csv(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv", column="content") == texts


TEXTS = {
    "plain.txt": (b"a\nb\n", "a\nb\n"),
    "mark.txt": (b"\xef\xbb\xbfa\nb", "a\nb"),
    "wide.txt": (utf16("zwei – drei"), "zwei – drei"),
    "wide_big.txt": ("\ufeffzwei – drei".encode("utf-16-be"), "zwei – drei"),
    "widest.txt": ("四".encode("utf-32"), "四"),
    "old_mac.txt": (b"a\rb", "a\rb"),
    "brackets.txt": (b"[Illustration]\n{a}", "[Illustration]\n{a}"),
    "code.c": (b"{\n  int x;\n}", "{\n  int x;\n}"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_read_exactly(name: str, tmp_path: Path) -> None:
    content, text = TEXTS[name]
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == [text]


def test_text_that_is_json_can_be_wanted_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    with pytest.raises(DataError, match=r"package\.json, line 1 has no column 'text'; .*data\.format to text"):
        read(tmp_path / "package.json")
    assert read(tmp_path / "package.json", format="text") == ['{"name": "x"}']


def test_a_long_window_of_zstd_is_read(tmp_path: Path) -> None:
    settings = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    (tmp_path / "a.txt.zst").write_bytes(packed.compress(b"text " * 1000) + packed.flush())
    assert read(tmp_path / "a.txt.zst") == ["text " * 1000]


def frames(count: int) -> bytes:
    rng = random.Random(0)
    return b"".join(zstandard.compress(rng.randbytes(500).hex().encode()) for _ in range(count))


def tar(members: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(members):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 600
            archive.addfile(info, io.BytesIO(b"x" * 600))
    return out.getvalue()


MEMBER_BYTES = 512 + 1024
"""A header, and 600 bytes in whole blocks."""


def with_broken_header(content: bytes) -> bytes:
    return content[:MEMBER_BYTES] + b"\xff" * 512 + content[MEMBER_BYTES + 512 :]


REFUSED: dict[str, tuple[bytes, str]] = {
    "cut.txt.zst": (frames(1)[:-20], "ends inside a zstd frame"),
    "cut_last.txt.zst": (frames(30)[:-20], "ends inside a zstd frame"),
    "junk.txt.zst": (frames(2) + b"junk", "cannot read"),
    "broken.txt.gz": (gzip.compress(b"text" * 100)[:15] + b"\xff" * 40, "cannot read"),
    "cut_at_member.tar": (tar(3)[: 2 * MEMBER_BYTES], "is not a complete tar"),
    "cut_in_member.tar": (tar(3)[: 2 * MEMBER_BYTES + 700], "is not a complete tar"),
    "broken_header.tar": (with_broken_header(tar(3)), "is not a complete tar"),
    "two.tar": (tar(1) + tar(1), "there is data after the end"),
    "cut.tar.zst": (zstandard.compress(tar(3))[:-8], "ends inside a zstd frame"),
    "cut_before_packing.tar.zst": (zstandard.compress(tar(3)[: 2 * MEMBER_BYTES]), "is not a complete tar"),
    "cut_before_packing.tar.gz": (gzip.compress(tar(3)[: 2 * MEMBER_BYTES]), "is not a complete tar"),
    "deep.jsonl": (b"[" * 100_000, "line 1 is not JSON: it is nested too deeply"),
    "deeper.jsonl": (b'{"text": "a"}\n{"text": ' + b"[" * 100_000, "line 2 is not JSON: it is nested too deeply"),
    "cut_array.json": (json.dumps(ROWS, indent=1).encode()[:-9], "is not JSON"),
    "columns.json": (b'{"text": {"0": "a", "1": "b"}}', "holds dict, not text"),
    "nested.json": (b'{"data": [{"text": "a"}]}', "no column 'text'; columns: data"),
    "number.txt": (b'{"text": 3}', "holds int, not text"),
    "wide.txt": ("zwei drei".encode("utf-16-le"), "many zero bytes"),
    "cut_wide.txt": (utf16("zwei")[:-1], "is not UTF-16"),
    "header.csv": (b"a,b\n1,2\n", "no column 'text'; columns: a, b"),
    "ragged.csv": (b"id,text\n1,one, two\n", "line 2 has 3 cells"),
    "open_quote.csv": (b'id,text\n1,"one\n2,two\n', "line 3 is not .csv"),
    "paper.pdf": (b"%PDF-1.7 ...", "is a PDF"),
    "archive.txt": (b"PK\x03\x04...", "is a zip archive"),
    "packed.jsonl.bz2": (b"BZh91AY", "is compressed with bzip2"),
    "fake.parquet": (b"text", "is not a parquet file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    content, reason = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        read(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_that_nothing_uses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(DataError, match=r"no file uses the column 'content': .*a\.txt"):
        read(tmp_path / "a.txt", column="content")
    (tmp_path / "b.jsonl").write_text('{"content": "b"}')
    assert read(tmp_path / "*", column="content") == ["a", "b"]


@pytest.mark.parametrize("folder", ["data[v2]", "data*", "what?"])
def test_a_folder_s_name_is_no_pattern(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a[1].txt").write_text("a")
    for pattern in ("a[1].txt", "*.txt", "."):
        found = parse({"source": "files", "paths": pattern})
        assert isinstance(found, TextSource)
        assert list(found.documents(tmp_path / folder)) == ["a"]
    assert read(tmp_path / folder / "*.txt") == read(tmp_path / folder) == ["a"]


MISSING: dict[str, Callable[[Path], tuple[Path, str]]] = {
    "absent": lambda base: (base / "b.txt", "b.txt): {base} contains a.txt"),
    "glob": lambda base: (base / "*.jsonl", "*.jsonl): {base} contains a.txt"),
    "folder": lambda base: (base / "no" / "such" / "a.txt", "{base} contains a.txt"),
    "file": lambda base: (base / "a.txt" / "b.txt", "a.txt is not a folder"),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_told_with_what_was_looked_for(case: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    path, reason = MISSING[case](tmp_path)
    with pytest.raises(DataError, match=re.escape(f"looked for {path}")) as caught:
        identify(parse({"source": "files", "paths": str(path)}))
    assert reason.format(base=tmp_path) in str(caught.value)


def test_a_folder_tells_what_it_has_of_other_kinds(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"part-{number}.json").write_bytes(JSON["dolma.json"])
    with pytest.raises(DataError, match=r"no file of a known kind; match its files with a glob: part-0\.json, .*, …"):
        read(tmp_path)
    assert read(tmp_path / "*.json") == DOCUMENTS * 7


def test_a_folder_of_shards_is_read_as_it_is(tmp_path: Path) -> None:
    """C4's, beside what comes with them."""
    for number in range(3):
        (tmp_path / f"c4-train.{number:05}-of-01024.json.gz").write_bytes(JSON["c4-train.00000-of-01024.json.gz"])
    (tmp_path / "dataset_infos.json").write_text("{}")
    assert read(tmp_path) == DOCUMENTS * 3


TOKENS = {"uint16": "<u2", "uint32": "<u4", "int64": "<i8"}


def tokens(path: Path, **spec: object) -> list[int]:
    """Lengths of the documents of a file of bytes' ids."""
    found = parse({"source": "tokens", "paths": str(path), **spec})
    assert isinstance(found, TextSource)
    return [len(text) for text in found.documents(Path())]


@pytest.mark.parametrize("written", TOKENS)
@pytest.mark.parametrize("read_as", TOKENS)
def test_raw_ids_of_another_type_are_refused_with_that_which_fits(written: str, read_as: str, tmp_path: Path) -> None:
    ids = [*b"one", 256, *b"two three", 256]
    path = tmp_path / "train.bin"
    np.array(ids, TOKENS[written]).tofile(path)
    if written == read_as:
        assert tokens(path, dtype=read_as) == [3, 9, 0]
        return
    with pytest.raises(
        DataError, match=f"{path} holds ids of type {written}, not {read_as}: set data.dtype to {written}"
    ):
        tokens(path, dtype=read_as)


@pytest.mark.parametrize("shape", [(14,), (2, 7)])
@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4", "<i8"])
def test_arrays_of_numpy_are_read(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([*b"one", 256, *b"two three", 256], dtype).reshape(shape))
    assert tokens(tmp_path / "a.npy") == tokens(tmp_path) == [3, 9, 0]
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npy must hold whole numbers, not float64"):
        tokens(tmp_path / "a.npy")


def megatron(path: Path, lengths: list[int], offsets: list[int], bounds: list[int], counts: tuple[int, int]) -> None:
    np.arange(10, dtype="<i4").tofile(path)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, *counts)
    numbers = (np.array(lengths, "<i4"), np.array(offsets, "<i8"), np.array(bounds, "<i8"))
    path.with_suffix(".idx").write_bytes(head + b"".join(each.tobytes() for each in numbers))


@pytest.mark.parametrize(
    ("lengths", "offsets", "bounds", "counts"),
    [
        ([4, -6], [0, 16], [0, 1, 2], (2, 3)),
        ([4, 6], [0, -16], [0, 1, 2], (2, 3)),
        ([4, 6], [0, 18], [0, 1, 2], (2, 3)),
        ([4, 6], [0, 16], [0, 2, 1], (2, 3)),
        ([4, 6], [0, 16], [0, 1, 9], (2, 3)),
        ([4, 6], [0, 16], [0, 1], (2, 2)),
        ([4, 6], [0, 16], [], (2, 0)),
        ([4, 60], [0, 16], [0, 1, 2], (2, 3)),
        ([4, 6], [0, 16], [0, 1, 2], (1 << 63, 3)),
        ([4, 6], [0, 16], [0, 1, 2], (1 << 40, 3)),
        ([4, 6], [0, 16], [0, 1, 2], (2, (1 << 64) - 1)),
    ],
)
def test_a_damaged_index_of_megatron_is_one_line(
    lengths: list[int], offsets: list[int], bounds: list[int], counts: tuple[int, int], tmp_path: Path
) -> None:
    megatron(tmp_path / "a.bin", lengths, offsets, bounds, counts)
    with pytest.raises(DataError, match=r"a\.(idx|bin)") as caught:
        tokens(tmp_path / "a.bin")
    assert "\n" not in str(caught.value)
