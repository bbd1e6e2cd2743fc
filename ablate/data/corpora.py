"""From a spec to a corpus, whatever its source: which one it is, making it once, opening it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from ablate.data.corpus import Corpus
from ablate.data.identity import DataIdentity, identify_text
from ablate.data.preparation import write_corpus
from ablate.data.sources import DataSource, Progress, TextSource
from ablate.data.sources._synthetic import SyntheticSource
from ablate.data.synthetic import SyntheticCorpus, identify_synthetic, synthetic_meta
from ablate.errors import DataError
from ablate.store import DataFolder
from ablate.store.documents import TextMeta

AnyCorpus: TypeAlias = Corpus | SyntheticCorpus


def identify(spec: DataSource, base: Path = Path(), root: Path | None = None) -> DataIdentity:
    """Which corpus a spec means, without preparing it. Text is read and hashed; neither tokenised nor written.

    root: where corpora are prepared; what changes elsewhere is as it was for those.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    if isinstance(spec, SyntheticSource):
        return identify_synthetic(spec)
    return identify_text(_pinned(spec, root), base)


def vocabulary(spec: DataSource, base: Path = Path()) -> int:
    """The size of the vocabulary, for which no text is read."""
    return spec.vocab_size if isinstance(spec, SyntheticSource) else _text(spec).tokenizer.vocabulary(base)


def prepare(spec: DataSource, root: Path, base: Path = Path(), progress: Progress | None = None) -> AnyCorpus:
    """The corpus that `spec` means, from `root/<digest>/`, which is made first if it is missing.

    Raises:
        DataError: the text or the tokenizer cannot be read, a split would be empty, or the text changed meanwhile.
        StoreError: it is there and cannot be read.
    """
    identity = identify(spec, base, root)
    folder = DataFolder(root / identity.digest)
    if not folder.path.exists():
        with folder.making() as work:
            if work is not None:
                _fill(work, spec, identity, base, root, progress or (lambda stage, share: None))
    return open_corpus(folder.path)


def open_corpus(directory: Path) -> AnyCorpus:
    """A corpus that was prepared.

    Raises:
        DataError: there is none.
        StoreError: what it is cannot be read, or a file is not what was prepared.
    """
    if not directory.is_dir():
        raise DataError(f"{directory} holds no prepared corpus")
    folder = DataFolder(directory)
    meta = folder.read()
    folder.check()
    return Corpus(folder, meta) if isinstance(meta, TextMeta) else SyntheticCorpus(folder, meta)


def _fill(
    work: DataFolder, spec: DataSource, identity: DataIdentity, base: Path, root: Path, progress: Progress
) -> None:
    if isinstance(spec, SyntheticSource):
        work.write(synthetic_meta(spec, identity))
    else:
        write_corpus(_text(spec), _pinned(spec, root), identity, work, base, progress)


def _pinned(spec: DataSource, root: Path | None) -> TextSource:
    return _text(spec).pinned(_prepared(root) if root else ())


def _prepared(root: Path) -> Iterator[TextMeta]:
    """The text corpora in a folder, the newest first."""
    folders = (path.parent for path in root.glob("[!.]*/meta.json"))
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        meta = DataFolder(path).read()
        if isinstance(meta, TextMeta):
            yield meta


def _text(spec: DataSource) -> TextSource:
    if not isinstance(spec, TextSource):
        raise TypeError(f"{type(spec).__name__} is neither a text source nor a synthetic task")
    return spec
