"""`ablate.prepare`: put a study's data into the store before anything is planned or trained."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from tokenizers import Tokenizer

from ablate.api.study_argument import StudyLike
from ablate.data import AnyCorpus, Corpus, DataSource
from ablate.data.sources import TextSource
from ablate.machine.numerics import pick_device
from ablate.running.corpora import prepare_corpora, receipt
from ablate.running.progress import Wanted, open_progress
from ablate.study.reading import load_study
from ablate.study.written import Sets
from store import Store
from store.tables import Schema

_COLUMNS: Schema = {
    "digest": pl.String,
    "source": pl.String,
    "files": pl.String,
    "duplicates": pl.Int64,
    "empty": pl.Int64,
    "repeated": pl.Int64,
    "parts": pl.List(pl.String),
    "vocabulary": pl.Int64,
    "unit": pl.String,
    "documents": pl.Int64,
    "bytes": pl.Int64,
    "train_tokens": pl.Int64,
    "tuning_tokens": pl.Int64,
    "judging_tokens": pl.Int64,
    "test_tokens": pl.Int64,
    "held_out_share": pl.Float64,
    "begins": pl.String,
}
BEGINNING = 200
"""Number of characters of the training text that are shown."""


def prepare(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    device: str | None = None,
    progress: Wanted = True,
) -> pl.DataFrame:
    """Download, tokenise and store a study's data, unless the store has them.

    Args:
        study, scale, sets, store, progress: as in `ablate.run`.
        device: determines the scale if none is given.

    Returns:
        A row for each corpus: number of files by recognised format, of documents or pieces of them, and of bytes; texts
        skipped as duplicates or as empty; pieces that repeat another; a line for each part of a mixture; tokens of each
        split; the share of bytes that is held out; and the beginning of the training text. Cells that do not apply are
        null, as most are for synthetic tasks.

    Raises:
        StudyError: the study or its data cannot be read.

    Example:
        >>> ablate.prepare("norm_placement", scale="gpu-hour")
    """
    chosen, place = load_study(study, scale, sets, device=device or pick_device()), Store(store)
    with open_progress(place, chosen.name, {}, progress) as shown:
        for line in receipt(chosen):
            shown.say(line)
        found = prepare_corpora(chosen, place, shown.data)
    sources = {arm.data.model_dump_json(): arm.data for arm in chosen.arms}.values()
    rows = [_row(corpus, source, chosen.folder) for corpus, source in zip(found, sources, strict=True)]
    return pl.DataFrame(rows, schema=_COLUMNS)


def _row(corpus: AnyCorpus, source: DataSource, folder: Path) -> dict[str, object]:
    row: dict[str, object] = {"digest": corpus.directory.name, "vocabulary": corpus.vocab_size}
    if not isinstance(corpus, Corpus):
        return row | {"source": source.source}
    meta = corpus.meta
    found = source.formats(folder) if isinstance(source, TextSource) else {}
    files = ", ".join(f"{count:,} {name}" for name, count in found.items()) or None
    tokens = corpus.tokens("train")[1 : BEGINNING * 4].tolist()  # bytes are up to four a character
    text: str = Tokenizer.from_file(str(corpus.tokenizer_path)).decode(tokens, skip_special_tokens=False)
    begins = text[:BEGINNING]
    return row | {
        "source": source.source,
        "files": files,
        "unit": meta.unit,
        "documents": meta.documents.total,
        "bytes": meta.bytes.total,
        "duplicates": meta.taken.duplicates if meta.taken else None,
        "empty": meta.taken.empty if meta.taken else None,
        "repeated": (meta.taken.repeated or None) if meta.taken else None,
        "parts": ([part.line for part in meta.taken.parts] or None) if meta.taken else None,
        **{f"{split}_tokens": count for split, count in meta.tokens.model_dump().items()},
        "held_out_share": meta.bytes.held_out / meta.bytes.total,
        "begins": begins,
    }
