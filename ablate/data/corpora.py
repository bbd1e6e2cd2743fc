"""Identify, prepare and open corpora. Text is tokenised once, into a folder named by the corpus digest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import tokenizers

from ablate.data.corpus import Corpus, SplitWriter
from ablate.data.identity import DataIdentity, MadeCorpus, MadeSource, identify_text, split_of
from ablate.data.references import reference_losses
from ablate.data.sources import BEGINNING, DataSource, Progress, TextSource, parse
from ablate.data.splitting import SPLITS, Survey, TextDocument, documents, pieces, survey
from ablate.data.tokenizers._encoder import Encoder
from store import DataFolder
from store.documents import PerSplit, TakenText, TextMeta
from store.errors import DataError

AnyCorpus: TypeAlias = Corpus | MadeCorpus


def identify(spec: DataSource, base: Path = Path(), root: Path | None = None) -> DataIdentity:
    """The identity of a spec's corpus, without preparing it. Text is read and hashed; neither tokenised nor written.

    root: the folder of prepared corpora. Remote datasets are taken at the revision from which they were prepared there.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    if isinstance(spec, MadeSource):
        return spec.identify()
    return identify_text(_pinned(spec, root), base)


def vocabulary(spec: DataSource, base: Path = Path()) -> int:
    """Vocabulary size, found without reading the text."""
    return spec.vocab_size if isinstance(spec, MadeSource) else _text(spec).tokenizer.vocabulary(base)


def prepare(
    spec: DataSource, root: Path, base: Path = Path(), progress: Progress | None = None, context: int | None = None
) -> AnyCorpus:
    """Open the corpus of `spec` in `root/<digest>/`; create the folder first if it is missing.

    context: tokens of a window that the held-out text must have room for; a new corpus that has none is not kept.

    Raises:
        DataError: the text or the tokenizer cannot be read, a split would be empty or is shorter than `context`, or the
            text changed meanwhile.
        StoreError: the folder exists and cannot be read.
    """
    identity = identify(spec, base, root)
    folder = DataFolder(root / identity.digest)
    if not folder.path.exists():
        with folder.making() as work:
            if work is not None:
                if isinstance(spec, MadeSource):
                    work.write(spec.describe(identity))
                    made: AnyCorpus = spec.open(work, identity.digest)
                else:
                    say = progress or (lambda stage, share: None)
                    made = Corpus(work, write_corpus(_text(spec), _pinned(spec, root), identity, work, base, say))
                _check_room(made, context)
    found = open_corpus(folder.path)
    _check_room(found, context)
    return found


def _check_room(corpus: AnyCorpus, context: int | None) -> None:
    """Raise DataError if the held-out text is shorter than a window."""
    if isinstance(corpus, Corpus) and context is not None:
        corpus.held_out_starts("test", context)


def open_corpus(directory: Path) -> AnyCorpus:
    """Open a prepared corpus.

    Raises:
        DataError: `directory` does not exist.
        StoreError: the metadata cannot be read, or a file is not what was prepared.
    """
    if not directory.is_dir():
        raise DataError(f"{directory} has no prepared corpus")
    folder = DataFolder(directory)
    meta = folder.read()
    folder.check()
    if isinstance(meta, TextMeta):
        return Corpus(folder, meta)
    source = parse(meta.spec)
    if not isinstance(source, MadeSource):
        raise TypeError(f"{directory} is no synthetic corpus")
    return source.open(folder, meta.digest)


def _pinned(spec: DataSource, root: Path | None) -> TextSource:
    return _text(spec).pinned(_prepared(root) if root else ())


def _prepared(root: Path) -> Iterator[TextMeta]:
    """Metadata of the text corpora in a folder, newest first."""
    folders = (path.parent for path in root.glob("[!.]*/meta.json"))
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        meta = DataFolder(path).read()
        if isinstance(meta, TextMeta):
            yield meta


def _text(spec: DataSource) -> TextSource:
    if not isinstance(spec, TextSource):
        raise TypeError(f"{type(spec).__name__} is neither a text source nor a synthetic task")
    return spec


TOKENIZER_BYTES = 16_000_000
"""Size of the sample that a tokenizer is trained on, taken evenly over the train split."""
CHANGED = "the data changed while being read; run again once all files are complete"
BATCH_BYTES = 1_000_000


def write_corpus(
    asked: TextSource, spec: TextSource, identity: DataIdentity, folder: DataFolder, base: Path, progress: Progress
) -> TextMeta:
    """Read and tokenise the text; write all splits, the tokenizer and the metadata into an empty folder.

    spec: `asked`, with remote revisions fixed.

    Raises:
        DataError: the text or the tokenizer cannot be read, a split would be empty, or the text changed meanwhile.
    """
    spec.fetch(progress)
    found = survey(spec, base)
    if spec.fingerprint() is None and found.content != identity.content:
        raise DataError(CHANGED)
    stage = "train tokenizer" if spec.tokenizer.learns else "read tokenizer"
    progress(stage, 0.0)
    # A tokenizer is trained on every k-th piece of the train split, so that the sample covers the whole corpus.
    every = -(-found.bytes.train // TOKENIZER_BYTES)
    train = (d for d in documents(spec, base, found.largest) if found.split_of(d) == "train")
    every_piece = (piece for document in train for piece in pieces(document.utf8))
    sample = (piece.decode() for piece in islice(every_piece, 0, None, every))
    encoder = spec.tokenizer.encoder(sample, base)
    progress(stage, 1.0)
    tokens = _write_tokens(spec, identity, found, encoder, folder, base, progress)
    encoder.tokenizer.save(str(folder.tokenizer_path))
    references = reference_losses(folder, identity.vocab_size, found.bytes, tokens)
    meta = TextMeta(
        digest=identity.digest,
        spec=asked.model_dump(mode="json"),
        content=identity.content,
        vocab_size=identity.vocab_size,
        tokenizer=asked.tokenizer.identity(base),
        split=split_of(asked, base, found.documents.held_out),
        content_read=found.content,
        unit=found.unit,
        documents=found.documents,
        bytes=found.bytes,
        tokens=tokens,
        vocab_learnt=encoder.tokenizer.get_vocab_size(with_added_tokens=True),
        eos=encoder.eos,
        dtype=SplitWriter.dtype_of(identity.vocab_size),
        validation_tokens=asked.validation_tokens,
        tokenizers=tokenizers.__version__,
        references=references,
        taken=_taken(spec, base, found),
    )
    folder.write(meta)
    return meta


def _taken(spec: TextSource, base: Path, found: Survey) -> TakenText:
    first = next(each for each in documents(spec, base, found.largest) if found.split_of(each) == "train")
    begins = first.utf8[: 4 * BEGINNING].decode(errors="ignore")[:BEGINNING]  # at most four bytes a character
    return TakenText(
        formats=spec.formats(base),
        duplicates=found.duplicates,
        empty=found.empty,
        repeated=found.repeated,
        parts=spec.parts_taken(base),
        begins=begins,
    )


def _write_tokens(
    spec: TextSource,
    identity: DataIdentity,
    found: Survey,
    encoder: Encoder,
    work: DataFolder,
    base: Path,
    progress: Progress,
) -> PerSplit:
    """Write all splits; return their lengths in tokens."""
    total, done = found.bytes.total, 0
    writers = [SplitWriter(work, split, encoder, identity.vocab_size, split != "train") for split in SPLITS]
    with ExitStack() as files:
        for writer in writers:
            files.enter_context(writer)
        for batch in _batches(documents(spec, base, found.largest)):
            for writer in writers:
                writer.add([d.utf8 for d in batch if found.split_of(d) == writer.split])
            done += sum(len(document.utf8) for document in batch)
            progress("tokenise", min(done / total, 1.0))
    if PerSplit(**{writer.split: writer.bytes for writer in writers}) != found.bytes:
        raise DataError(CHANGED)
    return PerSplit(**{writer.split: writer.tokens for writer in writers})


def _batches(stream: Iterator[TextDocument]) -> Iterator[list[TextDocument]]:
    """Batches of about `BATCH_BYTES`: enough to occupy the tokenizer's threads, small enough for memory."""
    batch: list[TextDocument] = []
    size = 0
    for document in stream:
        batch.append(document)
        size += len(document.utf8)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
