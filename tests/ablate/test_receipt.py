"""What was taken of the text is said before training: by `ablate data`, in the run's log, on the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ablate
from ablate.data import Corpus, prepare
from ablate.data.spec import parse
from ablate.store import Store


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
    assert "What was taken of the text, before training" in page
    assert f"{meta.documents.total:,} {'documents' if meta.unit == 'document' else 'documents and pieces'}" in page
