"""A corpus is made once and whole, whoever is killed and however many want it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.data import Corpus, DataError, DataSource, identify, parse, prepare
from ablate.data.splitting import SHARES
from store.documents import PerSplit


def spec_of(path: Path) -> DataSource:
    return parse({"source": "files", "paths": str(path), "tokenizer": {"kind": "bpe", "vocab_size": 300}})


def content(corpus: Corpus) -> dict[str, bytes]:
    """But for when its files were written."""
    return {path.name: path.read_bytes() for path in corpus.directory.iterdir() if "checked" not in path.name}


KILLED = """
import os, signal, sys
from pathlib import Path
import ablate.data.corpora as preparing
import store.files as files
from ablate.data import parse
path, root, stage, share = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if stage == "flush":
    files.sync_tree = die
spec = parse({"source": "files", "paths": path, "tokenizer": {"kind": "bpe", "vocab_size": 300}})
preparing.prepare(spec, Path(root), progress=lambda s, x: die() if (s, x) == (stage, float(share)) else None)
"""


@pytest.mark.parametrize(("stage", "share"), [("train tokenizer", "1"), ("tokenise", "1"), ("flush", "1")])
def test_a_kill_leaves_nothing_half_made(stage: str, share: str, corpus_file: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(corpus_file), str(root), stage, share]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL

    spec = spec_of(corpus_file)
    assert any(path.suffix == ".tmp" for path in root.iterdir())
    assert not (root / identify(spec).digest).exists()
    undisturbed = prepare(spec, tmp_path / "elsewhere")
    assert content(prepare(spec, root)) == content(undisturbed)
    assert {path.suffix for path in root.iterdir()} == {""}


def _prepare_together(barrier: Any, made: Any, path: Path, root: Path) -> None:
    stages: list[str] = []
    barrier.wait()
    corpus = prepare(spec_of(path), root, progress=lambda stage, _: stages.append(stage))
    made.put((bool(stages), int(corpus.batch(0, batch=4, context=32, seed=0).sum())))


def test_processes_at_once_make_it_once(corpus_file: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, made = context.Barrier(3), context.Queue()
    arguments = (barrier, made, corpus_file, tmp_path / "data")
    processes = [context.Process(target=_prepare_together, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    results = [made.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(built for built, _ in results) == [False, False, True]
    assert len({total for _, total in results}) == 1


def test_a_prepared_corpus_is_opened_not_made(corpus_file: Path, tmp_path: Path) -> None:
    spec = spec_of(corpus_file)
    first = prepare(spec, tmp_path / "data")
    told: list[tuple[str, float]] = []
    again = prepare(spec, tmp_path / "data", progress=lambda *stage: told.append(stage))
    assert not told
    assert again.digest == first.digest == identify(spec).digest == first.directory.name
    assert again.vocab_size == identify(spec).vocab_size == 300
    np.testing.assert_array_equal(again.tokens("train"), first.tokens("train"))


def test_a_corpus_made_twice_is_the_same(corpus_file: Path, tmp_path: Path) -> None:
    one, other = (prepare(spec_of(corpus_file), tmp_path / name) for name in ("a", "b"))
    assert content(one) == content(other)


def test_text_that_changes_meanwhile_is_noticed(corpus_file: Path, tmp_path: Path) -> None:
    def edit(stage: str, share: float) -> None:
        if (stage, share) == ("train tokenizer", 1.0):
            corpus_file.write_text(corpus_file.read_text().replace("cat", "horse"))

    with pytest.raises(DataError, match="changed while being read"):
        prepare(spec_of(corpus_file), tmp_path / "data", progress=edit)
    assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]


def test_meta_says_what_is_in_the_corpus(corpus_file: Path, tmp_path: Path) -> None:
    corpus = prepare(spec_of(corpus_file), tmp_path / "data")
    identity, held_out = identify(spec_of(corpus_file)), {part: len(corpus.held_out(part)) for part in SHARES}
    assert (corpus.meta.digest, corpus.meta.content) == (identity.digest, identity.content)
    assert corpus.meta.documents == PerSplit(train=60 - sum(held_out.values()), **held_out)
    assert corpus.meta.content_read == corpus.meta.content
    assert corpus.tokenizer_path.is_file()
