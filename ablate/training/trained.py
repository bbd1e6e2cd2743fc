"""The stored results of training: a run's model and its tokenizer. Damaged or missing files raise StoreError with the
remedy.

Files that may not be read, or do not fit in memory, are not damaged: such errors pass unchanged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import zoo
from ablate.training.checkpoint import opening
from ablate.training.lora import Adapters
from evals.conventions import Bos, Conventions, Published, TrainedConventions
from store import Store, StoreError, sums, tokenizer_in
from store.documents import RunDocument, RunStart, RunTeacher
from zoo.model import Decoder


def keep_trained(
    store: Store, digest: str, model: Decoder, tokenizer: Path | None, adapters: Adapters | None = None
) -> None:
    """Write the model and its tokenizer (None for a synthetic task) atomically. Adapters are merged into the model, and
    also saved beside it."""
    if adapters is not None:
        adapters.merge()
    with store.replacing(store.model_dir(digest)) as folder:
        zoo.save(model, folder)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, tokenizer_in(folder))
        if adapters is not None:
            adapters.save(folder)
        sums.write(folder, store.model_dir(digest), names=3)


def keep_published(store: Store, digest: str, files: Sequence[Path]) -> None:
    """Store the files of an imported model's tokenizer."""
    with store.replacing(store.published_dir(digest)) as folder:
        folder.mkdir()
        for path in files:
            shutil.copyfile(path, folder / path.name)
        sums.write(folder, store.published_dir(digest), names=3)


def published_tokenizer(store: Store, run: RunDocument) -> Path | None:
    """Folder of the files of an imported model's tokenizer; None for a run without them. Raises StoreError."""
    if run.conventions is None:
        return None
    folder, remedy = store.published_dir(run.digest), store.model_again(run.digest)
    with _whole(folder, remedy):
        return folder


def conventions_of(store: Store, run: RunDocument, eos: int, bos: Bos = "auto") -> Conventions:
    """Rules by which a run's model reads and writes text. eos: the token that ends a document of its corpus."""
    published = published_tokenizer(store, run)
    if published:
        return Published.read(published, bos)
    return TrainedConventions(trained_tokenizer(store, run.digest), eos, bos)


def trained_model(store: Store, digest: str, device: str = "cpu") -> Any:
    folder = store.model_dir(digest)
    with _whole(folder, store.model_again(digest)):
        return zoo.open(folder, device=device)


def copied_model(store: Store, checkpoint: str) -> Decoder:
    """The model of the store's copy of a checkpoint."""
    folder = store.checkpoint_dir(checkpoint)
    with _whole(folder, f"remove {folder}, and run the study again"):
        return zoo.open(folder)


def source_model(store: Store, source: RunStart | RunTeacher) -> Decoder:
    """The model of the run or the checkpoint from which another run starts or is distilled."""
    if source.run is not None:
        trained: Decoder = trained_model(store, source.run)
        return trained
    if source.checkpoint is None:
        raise ValueError("a source needs a run or a checkpoint")
    return copied_model(store, source.checkpoint)


def trained_tokenizer(store: Store, digest: str) -> Tokenizer:
    folder = store.model_dir(digest)
    with _whole(folder, store.model_again(digest)):
        return Tokenizer.from_str(store.tokenizer_path(digest).read_text(encoding="utf-8"))


@contextmanager
def _whole(folder: Path, remedy: str) -> Iterator[None]:
    """Context for reading a folder whose checksums match. Raises StoreError if it is missing or damaged."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is gone: {remedy}")
    sums.check(folder, remedy)
    with opening(folder):
        yield
