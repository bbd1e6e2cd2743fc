"""`ablate.prepare`: the text that a study reads, in the store before anything is planned or trained."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ablate.api.questions import StudyLike, read
from ablate.data import AnyCorpus, Corpus
from ablate.machine.numerics import pick_device
from ablate.running.corpora import prepare_corpora
from ablate.running.progress import Wanted, open_progress
from ablate.store import Store
from ablate.study.written import Sets

_COLUMNS = {"digest": pl.String, "source": pl.String, "vocabulary": pl.Int64, "train_tokens": pl.Int64}


def prepare(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    device: str | None = None,
    progress: Wanted = True,
) -> pl.DataFrame:
    """Download, tokenise and store what a study reads, unless the store has it.

    Args:
        study, scale, sets, store, progress: as in `ablate.run`.
        device: determines the scale if none is given.

    Returns:
        A row for each corpus: digest, source, vocabulary, training tokens (null for synthetic tasks).

    Raises:
        StudyError: the study or its data cannot be read.

    Example:
        >>> ablate.prepare("norm_placement", scale="gpu-quick")
    """
    chosen, place = read(study, scale, sets, device or pick_device()), Store(store)
    with open_progress(place, chosen.name, {}, progress) as shown:
        found = prepare_corpora(chosen, place, shown.data)
    return pl.DataFrame([_row(corpus) for corpus in found], schema=_COLUMNS)


def _row(corpus: AnyCorpus) -> dict[str, object]:
    if isinstance(corpus, Corpus):
        source, tokens = str(corpus.meta.spec["source"]), corpus.meta.tokens.train
    else:
        source, tokens = corpus.source.source, None
    return {
        "digest": corpus.directory.name,
        "source": source,
        "vocabulary": corpus.vocab_size,
        "train_tokens": tokens,
    }
