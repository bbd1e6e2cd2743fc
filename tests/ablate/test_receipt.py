"""What was taken of the text is said before training: by `ablate data`, in the run's log, on the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ablate
from ablate.data import Corpus, DataError, prepare
from ablate.data.sources import TextSource, parse
from store import Store


def test_what_was_read_and_what_was_skipped(tmp_path: Path) -> None:
    texts = [f"Document {i} says something of its own.\nAnd a second line.\n" for i in range(40)]
    lines = [json.dumps({"text": text}) for text in (*texts[:30], *texts[:3], "", "")]
    (tmp_path / "shard.jsonl").write_text("\n".join(lines))
    (tmp_path / "note.txt").write_text(texts[35])
    spec = parse({"source": "files", "paths": ["*.jsonl", "*.txt"], "validation_fraction": 0.2})
    corpus = prepare(spec, tmp_path / "data", tmp_path, lambda *_: None)
    assert isinstance(corpus, Corpus)
    meta = corpus.meta
    assert meta.taken is not None
    assert (meta.documents.total, meta.taken.duplicates, meta.taken.empty) == (31, 3, 2)
    assert sum(meta.taken.formats.values()) == 2
    assert meta.taken.begins in texts
    said = list(meta.receipt)
    assert said[0].startswith("files: files read as 1 ")
    assert said[1:3] == [
        f"files: 31 documents, {meta.bytes.total:,} bytes",
        "files: skipped 3 duplicates, 2 empty documents",
    ]
    assert said[-1].startswith("the training text begins: Document ")


def test_each_part_of_a_mixture_says_what_was_read_of_it(tmp_path: Path) -> None:
    """Against the texts themselves: the larger weight has three times the bytes, to within a document."""
    texts = {name: [f"{name} {i} " + "x" * 50 for i in range(100)] for name in ("many", "few")}
    for name, some in texts.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    parts = [{"data": {"source": "files", "paths": f"{n}.jsonl"}, "weight": w} for n, w in (("many", 3), ("few", 1))]
    source = parse({"source": "mixture", "parts": parts, "validation_fraction": 0.2})
    corpus = prepare(source, tmp_path / "data", tmp_path)
    assert isinstance(corpus, Corpus) and isinstance(source, TextSource)
    read = list(source.documents(tmp_path))
    assert corpus.meta.taken is not None
    for part, (name, some) in zip(corpus.meta.taken.parts, texts.items(), strict=True):
        own = [text for text in read if text.startswith(name)]
        assert (part.name, part.formats, part.documents) == (f"files {name}.jsonl", {"JSON": 1}, len(own))
        assert (part.bytes, part.begins) == (sum(map(len, own)), some[0])
        assert f"mixture: {part.line}" in corpus.meta.receipt
    many, few = corpus.meta.taken.parts
    assert abs(many.bytes / 3 - few.bytes) <= 60


def test_pieces_that_repeat_another_are_told(tmp_path: Path) -> None:
    """Thirty times the same 8 kB, and thirty others: 29 are left out."""
    lines = [f"{i:63}\n" for i in range(31 * 128)]
    (tmp_path / "song.txt").write_text("".join([*lines[:128] * 30, *lines[128:]]))
    spec = parse({"source": "files", "paths": "song.txt", "validation_fraction": 0.2})
    corpus = prepare(spec, tmp_path / "data", tmp_path)
    assert isinstance(corpus, Corpus) and corpus.meta.taken is not None
    assert (corpus.meta.taken.repeated, corpus.meta.bytes.total) == (29, 31 * 8192)
    assert "files: skipped 0 duplicates, 0 empty documents, 29 duplicate pieces" in corpus.meta.receipt
    (tmp_path / "same.txt").write_text("x" * 700_000)
    with pytest.raises(DataError, match=r"and \d+ repeated pieces are left out"):
        prepare(parse({"source": "files", "paths": "same.txt"}), tmp_path / "data", tmp_path)


def test_the_log_and_the_page_say_it(trained: Path, tmp_path: Path) -> None:
    root = shutil.copytree(trained, tmp_path / "runs")
    store = Store(root)
    run = next(path.parent.name for path in sorted(root.glob("*/run.json")))
    document = store.read_run(run)
    assert document is not None
    meta = store.data(document.data.digest).read()
    assert not isinstance(meta, type(None)) and meta.kind == "text"
    log = store.log_path(run).read_text()
    page = ablate.report(next((root / "studies").iterdir())).read_text()
    for line in meta.receipt:
        assert line in log
    assert "How the text was read and split" in page
    assert f"{meta.documents.total:,} {'documents' if meta.unit == 'document' else 'documents and pieces'}" in page
