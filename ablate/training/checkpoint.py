"""Resumable state: all that an interrupted run needs to end bit for bit like an uninterrupted one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

import torch

from evals.costs.memory import is_out_of_memory
from store import Store, StoreError, checksum


@dataclass
class TrainingProgress:
    """Progress of training. `seconds` counts training steps, `wall_seconds` everything; losses are in nats per scored
    target. `attention` names the backends of attention in training steps."""

    step: int = 0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    start_loss: float | None = None
    steps_above_start: int = 0
    start_validation_loss: float | None = None
    validation_loss: float | None = None
    attention: str | None = None


class HasState(Protocol):
    """A model, an optimizer, or an average of weights."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save_state(store: Store, digest: str, place: TrainingProgress, parts: Mapping[str, HasState]) -> None:
    """Write state.pt atomically. parts: everything that training changes, by name."""
    state = {
        "place": asdict(place),
        "logs": store.log_seals(digest),
        **{name: part.state_dict() for name, part in parts.items()},
    }
    with store.replacing(store.state_path(digest)) as temporary:
        torch.save(state, temporary)
        checksum.seal(temporary, store.state_path(digest).parent.name)


def load_state(store: Store, digest: str, parts: Mapping[str, HasState]) -> TrainingProgress:
    """Load the saved state, if there is one, into `parts`. Raises StoreError if it is damaged, or of another run."""
    path = store.state_path(digest)
    if not path.exists():
        return TrainingProgress()
    store.check_state(digest)
    with opening(path):
        # Load on the host, from which parts copy: a second copy on a GPU would count in the run's peak memory.
        state = torch.load(path, map_location="cpu", weights_only=True)
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
