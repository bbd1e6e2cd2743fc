"""The stored results of training: a run's model and its tokenizer. Damaged or missing files raise StoreError with the
remedy.

Files that may not be read, or do not fit in memory, are not damaged: such errors pass unchanged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer

import zoo
from ablate.training.weights import Addition
from evals.conventions import Bos, Conventions, TrainedConventions
from evals.costs.memory import is_out_of_memory
from store import Store, StoreError, checksum, replacing, stamps, tokenizer_in
from store.documents import RunDocument
from store.extensions import module_of
from zoo.model import Decoder

# Resumable state: all that an interrupted run needs to end bit for bit like an uninterrupted one.


@dataclass
class TrainingProgress:
    """Progress of training. `seconds` counts training steps, `wall_seconds` everything; losses are in nats per scored
    target. `attention` names the backends of attention in training steps. `shared_with` is the run that took the first
    `shared_steps`."""

    step: int = 0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    start_loss: float | None = None
    steps_above_start: int = 0
    start_validation_loss: float | None = None
    validation_loss: float | None = None
    attention: str | None = None
    shared_steps: int = 0
    shared_with: str | None = None


class HasState(Protocol):
    """A model, an optimizer, or an average of weights."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save_state(
    store: Store, digest: str, place: TrainingProgress, parts: Mapping[str, HasState], path: Path | None = None
) -> None:
    """Write the state to `path`, by default state.pt. parts: everything that training changes, by name."""
    found = {name: part.state_dict() for name, part in parts.items()}
    write_state(path or store.state_path(digest), {"place": asdict(place), "logs": store.log_seals(digest), **found})


def write_state(path: Path, state: Mapping[str, object]) -> None:
    """Write a state to the folder of its run, atomically."""
    with replacing(path) as temporary:
        torch.save(state, temporary)
        checksum.seal(temporary, path.parent.name)


def read_state(store: Store, digest: str, path: Path) -> Any:
    """The content of a state of a run. Raises StoreError if it is damaged, or of another run."""
    store.check_state(digest, path)
    with opening(path):
        # Load on the host, from which parts copy: a second copy on a GPU would count in the run's peak memory.
        return torch.load(path, map_location="cpu", weights_only=True)


def load_state(store: Store, digest: str, parts: Mapping[str, HasState]) -> TrainingProgress:
    """Load the saved state, if there is one, into `parts`. Raises StoreError if it is damaged, or of another run."""
    path = store.state_path(digest)
    if not path.exists():
        return TrainingProgress()
    state = read_state(store, digest, path)
    store.check_logs(digest, state.get("logs", {}) if isinstance(state, dict) else {})
    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return TrainingProgress(**state["place"])
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        reason = shorten(str(error), 160, placeholder=" …")
        raise StoreError(f"{path}: belongs to another run ({reason}): remove it to start the run again") from error


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Context for reading files that match their checksums. Errors are then no sign of damage, and no reason to remove
    the files. OSErrors and out-of-memory errors pass; others, as of another version's files, become a StoreError."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # readers of foreign formats have errors of their own
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        reason = shorten(str(error), 160, placeholder=" …") or type(error).__name__
        raise StoreError(f"{path} is intact, but this installation cannot open it: {reason}") from error


def keep_trained(
    store: Store, digest: str, model: Decoder, tokenizer: Path | None, addition: Addition | None = None
) -> None:
    """Write the model and its tokenizer (None for a synthetic task) atomically. An addition is merged into the model,
    and also saved beside it."""
    if addition is not None:
        addition.merge()
    with replacing(store.model_dir(digest)) as folder:
        zoo.save(model, folder)
        if tokenizer is not None:
            shutil.copyfile(tokenizer, tokenizer_in(folder))
        if addition is not None:
            addition.save(folder)
        stamps.write(folder, store.model_dir(digest), names=3)


def keep_published(store: Store, digest: str, files: Sequence[Path]) -> None:
    """Store the files of an imported model's tokenizer."""
    with replacing(store.published_dir(digest)) as folder:
        folder.mkdir()
        for path in files:
            shutil.copyfile(path, folder / path.name)
        stamps.write(folder, store.published_dir(digest), names=3)


def published_tokenizer(store: Store, run: RunDocument) -> Path | None:
    """Folder of the files of an imported model's tokenizer; None for a run without them. Raises StoreError."""
    if run.conventions is None:
        return None
    folder, remedy = store.published_dir(run.digest), store.model_again(run.digest)
    with whole(folder, remedy):
        return folder


def conventions_of(store: Store, run: RunDocument, eos: int, bos: Bos = "auto") -> Conventions:
    """Rules by which a run's model reads and writes text. eos: the token that ends a document of its corpus."""
    published = published_tokenizer(store, run)
    if not published:
        return TrainedConventions(trained_tokenizer(store, run.digest), eos, bos)
    if (wing := module_of(__name__)) is None:
        raise StoreError(f"{run.digest}: what reads as models from elsewhere do is not installed")
    found: Conventions = wing.published(published, bos)
    return found


def trained_model(store: Store, digest: str, device: str = "cpu") -> Any:
    folder = store.model_dir(digest)
    with whole(folder, store.model_again(digest)):
        return zoo.open(folder, device=device)


def trained_tokenizer(store: Store, digest: str) -> Tokenizer:
    folder = store.model_dir(digest)
    with whole(folder, store.model_again(digest)):
        return Tokenizer.from_str(store.tokenizer_path(digest).read_text(encoding="utf-8"))


@contextmanager
def whole(folder: Path, remedy: str) -> Iterator[None]:
    """Context for reading a folder whose checksums match. Raises StoreError if it is missing or damaged."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is gone: {remedy}")
    stamps.check(folder, remedy)
    with opening(folder):
        yield
