"""From a spec to a corpus, whatever its source: which one it is, making it once, opening it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TypeAlias

from filelock import FileLock

from ablate.data.corpus import Corpus, read_meta
from ablate.data.identity import DataIdentity, identify_text
from ablate.data.preparation import Progress, write_corpus
from ablate.data.sources import DataSource, TextSource
from ablate.data.sources._synthetic import SyntheticSource
from ablate.data.synthetic import SyntheticCorpus, identify_synthetic, synthetic_meta

AnyCorpus: TypeAlias = Corpus | SyntheticCorpus


def identify(spec: DataSource, base: Path = Path()) -> DataIdentity:
    """Which corpus a spec means, without preparing it. Text is read and hashed; neither tokenised nor written.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    if isinstance(spec, SyntheticSource):
        return identify_synthetic(spec)
    return identify_text(_text(spec), base)


def prepare(spec: DataSource, root: Path, base: Path = Path(), progress: Progress | None = None) -> AnyCorpus:
    """The corpus that `spec` means, from `root/<digest>/`, which is made first if it is missing.

    Made in a temporary folder beside it and renamed, under a lock that the death of its process frees: what is there
    is whole, and two processes do not make it twice.

    Raises:
        DataError: the text or the tokenizer cannot be read, a split would be empty, or the text changed meanwhile.
    """
    identity = identify(spec, base)
    directory = root / identity.digest
    if not directory.exists():
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{identity.digest}.lock"):
            if not directory.exists():
                _make(spec, identity, directory, base, progress or (lambda stage, share: None))
    return open_corpus(directory)


def open_corpus(directory: Path) -> AnyCorpus:
    """A corpus that was prepared.

    Raises:
        DataError: there is none.
    """
    return SyntheticCorpus(directory) if "synthetic" in read_meta(directory) else Corpus(directory)


def _make(spec: DataSource, identity: DataIdentity, directory: Path, base: Path, progress: Progress) -> None:
    work = directory.with_name(f".{identity.digest}.part")
    if work.exists():  # left by a process that was killed: the lock is ours, so nobody writes there
        shutil.rmtree(work)
    work.mkdir()
    try:
        if isinstance(spec, SyntheticSource):
            (work / "meta.json").write_text(json.dumps(synthetic_meta(spec, identity), indent=1))
        else:
            write_corpus(_text(spec), identity, work, base, progress)
        _flush(work)
        work.replace(directory)
    finally:
        if work.exists():
            shutil.rmtree(work)


def _text(spec: DataSource) -> TextSource:
    if not isinstance(spec, TextSource):
        raise TypeError(f"{type(spec).__name__} is neither text nor made")
    return spec


def _flush(folder: Path) -> None:
    """On disk before the rename: a folder that is there after a power cut is whole."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
