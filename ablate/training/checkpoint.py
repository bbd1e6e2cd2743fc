"""Resumable state: all that an interrupted run needs to end with the same bits as an undisturbed one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import nn

from ablate.store import Store, StoreError
from ablate.training.optimizers import Updates
from evals.costs.memory import is_out_of_memory


@dataclass
class TrainingProgress:
    """How far training has got. `seconds` counts training, `wall_seconds` everything; losses are in nats per token."""

    step: int = 0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    start_loss: float | None = None
    steps_above_start: int = 0
    start_validation_loss: float | None = None
    validation_loss: float | None = None


def save_state(store: Store, digest: str, place: TrainingProgress, model: nn.Module, optimizer: Updates) -> None:
    """Write state.pt atomically."""
    state = {
        "place": asdict(place),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    with store.replacing(store.state_path(digest)) as temporary:
        torch.save(state, temporary)


def load_state(store: Store, digest: str, model: nn.Module, optimizer: Updates) -> TrainingProgress:
    """Put the saved state, if there is one, into `model` and `optimizer`; drop what the logs say after it."""
    path = store.state_path(digest)
    if not path.exists():
        store.truncate_logs(digest, step=-1)
        return TrainingProgress()
    place = _restored(path, _read(path, next(model.parameters()).device), model, optimizer)
    store.truncate_logs(digest, place.step)
    return place


def _read(path: Path, device: torch.device) -> Any:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # what the unpickler raises depends on the damage
        raise StoreError(f"{path} is damaged: remove it to start the run again") from error


def _restored(path: Path, state: Any, model: nn.Module, optimizer: Updates) -> TrainingProgress:
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return TrainingProgress(**state["place"])
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        reason = shorten(str(error), 160, placeholder=" …")
        raise StoreError(f"{path}: belongs to another run ({reason}): remove it to start the run again") from error
