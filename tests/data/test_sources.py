"""Every source gives its documents, in order, or one line that says why not."""

from __future__ import annotations

import argparse
import gzip
import inspect
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pydantic
import pytest
import zstandard

from ablate.data import Corpus, DataError, DataSource, identify, parse, prepare
from ablate.data.sources import hf
from ablate.data.splitting import survey

DOCUMENTS = ["one\n", "zwei – drei", "四\n五"]


def read(**spec: object) -> list[str]:
    return list(parse(spec).documents(Path()))


def lines(documents: list[str], column: str = "text") -> bytes:
    return "".join(json.dumps({"id": i, column: d}) + "\n" for i, d in enumerate(documents)).encode()


def frames(content: bytes) -> bytes:
    """zstd in two frames, as parallel compressors write it."""
    half = len(content) // 2
    return b"".join(zstandard.compress(part) for part in (content[:half], content[half:]))


def parquet(path: Path) -> None:
    pl.DataFrame({"id": [0, 1, 2, 3], "text": [*DOCUMENTS, None]}).write_parquet(path)


TABLES: dict[str, Callable[[Path], object]] = {
    "a.jsonl": lambda path: path.write_bytes(lines(DOCUMENTS)),
    "a.ndjson": lambda path: path.write_bytes(b"\n" + lines(DOCUMENTS)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(lines(DOCUMENTS))),
    "a.jsonl.zst": lambda path: path.write_bytes(frames(lines(DOCUMENTS))),
    "a.parquet": parquet,
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_documents(name: str, tmp_path: Path) -> None:
    TABLES[name](tmp_path / name)
    assert read(source="files", paths=str(tmp_path / name)) == DOCUMENTS


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a.txt.gz", "a.txt.zst"])
def test_a_text_file_is_one_document(name: str, tmp_path: Path) -> None:
    text = "\n".join(DOCUMENTS)
    pack = {".gz": gzip.compress, ".zst": frames}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(text.encode()))
    assert read(source="files", paths=str(tmp_path / name)) == [text]


def test_a_separator_cuts_a_text_into_documents(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("To be\n\nOr not\n\nto be")
    assert read(source="files", paths=[str(tmp_path / "play.txt")], separator="\n\n") == ["To be", "Or not", "to be"]


def test_paths_start_at_the_study_and_expand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    for name in ("texts/b.txt", "texts/a.txt", "texts/deep/c.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("CORPUS", str(tmp_path / "texts"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def found(*paths: str) -> list[str]:
        return list(parse({"source": "files", "paths": paths}).documents(tmp_path))

    assert found("texts/*.txt") == ["texts/a.txt", "texts/b.txt"]
    assert found("$CORPUS/b.txt", "${CORPUS}/*.txt") == ["texts/b.txt", "texts/a.txt"]
    assert found("~/texts/**/*.txt") == ["texts/a.txt", "texts/b.txt", "texts/deep/c.txt"]


BROKEN: dict[str, tuple[bytes, str]] = {
    "column.jsonl": (lines(["x"], column="body"), "no column 'text'; columns: id, body"),
    "number.jsonl": (b'{"text": 3}\n', "holds int, not text"),
    "list.jsonl": (b"[1]\n", "line 1 is not a JSON object"),
    "torn.jsonl": (lines(["x"]) + b'{"text": "y', "line 2 is not JSON"),
    "empty.parquet": (b"", "is not a parquet file"),
    "latin1.txt": ("é".encode("latin-1"), "is not UTF-8 text"),
    "plain.txt.gz": (b"plain", "cannot read"),
    "cut.txt.gz": (gzip.compress(b"x" * 1000)[:-12], "cannot read"),
    "plain.txt.zst": (b"plain", "cannot read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named(name: str, tmp_path: Path) -> None:
    content, reason = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    message = complaint(parse({"source": "files", "paths": str(tmp_path / name)}))
    assert name in message
    assert reason in message


def test_a_parquet_file_without_the_column_says_which_it_has(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet")
    spec = parse({"source": "files", "paths": str(tmp_path / "*.parquet"), "column": "body"})
    assert "no column 'body'; columns: id, text" in complaint(spec)


def test_patterns_without_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    assert "'*.nope'" in complaint(parse({"source": "files", "paths": "*.nope"}))
    assert "the folder has no file of a known kind" in complaint(parse({"source": "files", "paths": str(tmp_path)}))
    assert "NOWHERE is not set" in complaint(parse({"source": "files", "paths": "$NOWHERE/*.txt"}))


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{i} \\ud83d!"}}\n' for i in range(40)))
    spec = parse({"source": "files", "paths": str(tmp_path / "a.jsonl")})
    assert survey(spec, Path()).bytes.total == 10 * len("0 ?!") + 30 * len("10 ?!")


def test_unknown_keys_and_sources_are_refused() -> None:
    for wrong in ({"source": "files", "path": "x"}, {"source": "nowhere"}, {"source": "files", "paths": []}, {}):
        with pytest.raises(pydantic.ValidationError):
            parse(wrong)


def test_the_standard_library_is_read_in_order_and_quickly() -> None:
    begin = time.perf_counter()
    identity = identify(parse("stdlib"))
    assert time.perf_counter() - begin < 2
    assert identity == identify(parse({"source": "stdlib"}))
    assert survey(parse("stdlib"), Path()).bytes.total > 2_000_000

    documents = list(parse("stdlib").documents(Path()))
    assert inspect.getsource(argparse) in documents
    assert any(text.startswith('The "assert" statement') for text in documents)
    assert inspect.getsource(pytest) not in documents


def test_a_python_without_library_sources_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert "use data.source=files" in complaint(parse("stdlib"))


def test_a_pinned_dataset_is_known_without_a_network() -> None:
    spec = {"source": "hf", "path": "someone/something", "revision": "a" * 40}
    identity = identify(parse(spec))
    assert identity.digest != identify(parse({**spec, "revision": "b" * 40})).digest
    assert identity.digest != identify(parse({**spec, "limit": 5})).digest
    assert identity.vocab_size == 257


def test_a_dataset_is_read_in_order(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    pl.DataFrame({"body": [f"document {i}" for i in range(30)]}).write_parquet(tmp_path / "train.parquet")
    spec = {"source": "hf", "path": str(tmp_path), "revision": "a" * 40, "column": "body", "limit": 25}
    assert read(**spec) == [f"document {i}" for i in range(25)]
    with pytest.raises(DataError, match="no column 'text'; columns: body"):
        read(**{**spec, "column": "text"})
    with pytest.raises(DataError, match="Bad split"):
        read(**{**spec, "split": "nope"})


def test_a_home_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    pl.DataFrame({"text": ["a"]}).write_parquet(tmp_path / "train.parquet")
    inside = tmp_path / "train.parquet" / "cache"
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", inside)
    with pytest.raises(DataError, match=rf"{tmp_path / 'train.parquet'}.*: set HF_HOME to a writable folder"):
        read(source="hf", path=str(tmp_path), revision="b" * 40, limit=1)


class Hub:
    """Stand-in for the hub: a dataset whose newest commit moves on."""

    def __init__(self) -> None:
        self.commit, self.asked, self.loaded = "a" * 40, 0, 0

    def dataset_info(self, *_: Any, **settings: Any) -> Any:
        self.asked += 1
        return SimpleNamespace(sha=self.commit)

    def load_dataset(self, *_: Any, **settings: Any) -> Any:
        self.loaded += 1
        return SimpleNamespace(take=lambda limit: ({"text": f"{i} {'word ' * 40}"} for i in range(limit)))


def ask_again() -> None:
    """Ask the hub again, as a new process does."""
    hf._newest.cache_clear()
    hf._download.cache_clear()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    ask_again()
    yield hub
    ask_again()


def test_a_prepared_dataset_stays_at_its_commit_and_asks_the_hub_no_more(hub: Hub, tmp_path: Path) -> None:
    spec = parse({"source": "hf", "path": "some/text", "limit": 60})
    first = prepare(spec, tmp_path)
    asked, hub.commit = hub.asked, "b" * 40
    ask_again()
    assert identify(spec, root=tmp_path).digest == first.directory.name
    assert prepare(spec, tmp_path).directory == first.directory
    tokenizer = {"kind": "bpe", "vocab_size": 300}
    other = prepare(parse({"source": "hf", "path": "some/text", "limit": 60, "tokenizer": tokenizer}), tmp_path)
    assert isinstance(other, Corpus)
    assert "a" * 40 in other.meta.content
    assert hub.asked == asked
    tagged = parse({"source": "hf", "path": "some/text", "revision": "v2"})
    assert "b" * 40 in identify(tagged, root=tmp_path).content
    assert (
        identify(parse({"source": "hf", "path": "some/text", "revision": "v2"}), root=tmp_path).content[13:53]
        == "b" * 40
    )
    assert identify(spec).digest != first.directory.name


def test_a_dataset_is_downloaded_once_and_not_into_memory(hub: Hub, tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    limit = 4 * hf.REPORTED
    spec = parse({"source": "hf", "path": "some/text", "limit": limit})
    prepare(spec, tmp_path, progress=lambda *at: told.append(at))
    assert hub.loaded == 1
    assert [share for stage, share in told if stage == "download"] == [0.25, 0.5, 0.75, 1.0, 1.0]

    tracemalloc.start()
    texts = iter(spec.documents(Path()))
    assert next(texts).startswith("0 word")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < limit * len("word " * 40) / 4
    assert sum(1 for _ in texts) == limit - 1


def test_without_a_network_a_dataset_says_what_to_do() -> None:
    pytest.importorskip("datasets")
    program = """
from ablate.data import DataError, identify, parse
try:
    identify(parse({"source": "hf", "path": "someone/something"}))
except DataError as error:
    print(error)
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "cannot read someone/something" in done.stdout
    assert "--set data.source=stdlib" in done.stdout


def test_data_loads_without_heavy_packages() -> None:
    program = "import sys, ablate.data; print({'torch', 'datasets', 'pyarrow', 'polars'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def complaint(spec: DataSource) -> str:
    with pytest.raises(DataError) as caught:
        identify(spec)
    message = str(caught.value)
    assert "\n" not in message
    return message
