"""Resumable state: all that an interrupted run needs to end with the same bits as an undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

import torch

from ablate.store import Store, StoreError, checksum
from evals.costs.memory import is_out_of_memory


@dataclass
class TrainingProgress:
    """Progress of training. `seconds` counts training, `wall_seconds` everything; losses are in nats per token.
    `attention` names the backends that its training steps take."""

    step: int = 0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    start_loss: float | None = None
    steps_above_start: int = 0
    start_validation_loss: float | None = None
    validation_loss: float | None = None
    attention: str | None = None


class HasState(Protocol):
    """A model, an optimizer, an average of weights."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save_state(store: Store, digest: str, place: TrainingProgress, parts: Mapping[str, HasState]) -> None:
    """Write state.pt atomically. parts: all that training changes, by name."""
    state = {
        "place": asdict(place),
        "logs": store.log_seals(digest),
        **{name: part.state_dict() for name, part in parts.items()},
    }
    with store.replacing(store.state_path(digest)) as temporary:
        torch.save(state, temporary)
        checksum.seal(temporary, store.state_path(digest).parent.name)


def load_state(store: Store, digest: str, parts: Mapping[str, HasState]) -> TrainingProgress:
    """Put the saved state, if there is one, into `parts`."""
    path = store.state_path(digest)
    if not path.exists():
        return TrainingProgress()
    store.check_state(digest)
    with opening(path):
        # On the host, from where parts copy what is theirs: a second copy on a GPU would count as memory of the run.
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
    """Around reading what matches its checksums. What goes wrong is no damage, and nobody should remove good work for
    it: another version wrote it, it may not be read, or there is no room for it."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # readers of foreign formats have errors of their own
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        reason = shorten(str(error), 160, placeholder=" …") or type(error).__name__
        raise StoreError(f"{path} is whole, but cannot be opened here: {reason}") from error
