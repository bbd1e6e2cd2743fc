"""Ending a process when its parent dies."""

from __future__ import annotations

import os

from ablate.training.stop import ENDED_BY_REQUEST


def end_with_parent() -> None:
    """Standard input is a pipe from the parent: it closes when the parent dies, even by SIGKILL."""
    while os.read(0, 1):
        pass
    os._exit(ENDED_BY_REQUEST)
