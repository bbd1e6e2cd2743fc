"""Ending a worker from outside so that nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""How it is asked to end: by us, and by Slurm, which signals all processes of a job."""
ENDED_BY_REQUEST = 128 + signal.SIGTERM
"""The exit status of a worker that was asked to end."""


class Interrupted(Exception):  # noqa: N818 (not an error)
    """Training was told to stop; its state is saved."""


class StopSignal:
    """A request to end, by a signal: at once, or, inside `deferred`, when the block next asks."""

    def __init__(self) -> None:
        self.asked = False
        self._deferred = False

    def listen(self) -> None:
        for number in ASKING:
            signal.signal(number, self._signalled)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The block looks at `asked` by itself, between training steps."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _signalled(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self._deferred:
            raise SystemExit(ENDED_BY_REQUEST)
