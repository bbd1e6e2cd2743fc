"""Stopping a worker by a signal without losing work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ask a worker to end: this tool's, and those of Slurm, which signals all processes of a job."""
TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that ask a command to end: from `timeout` and systemd, a closed terminal, and Slurm before its time limit."""
ENDED_BY_REQUEST = 128 + signal.SIGTERM
"""The exit status of a worker that was asked to end."""


class Interrupted(Exception):  # noqa: N818 (not an error)
    """Training was told to stop; its state is saved."""


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number


def as_ctrl_c(number: int, _frame: FrameType | None) -> NoReturn:
    """Handler of signals that ask a command to end."""
    raise Stopped(number)


class StopSignal:
    """A request to end, by a signal or by `meanwhile`: obeyed at once or, inside `deferred`, at the next `poll`.

    meanwhile: callback of each poll, in which a caller in the same process may look at the run's progress and set
        `asked`. Its errors are the caller's and not the run's: they end the run as a request does, and are raised at
        the end of `overheard`.
    """

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.asked = False
        self._meanwhile = meanwhile
        self._error: Exception | None = None
        self._deferred = False

    def poll(self) -> bool:
        """Whether the work shall end."""
        if not self.asked:
            try:
                self._meanwhile()
            except Exception as error:  # whatever the caller's storage raises
                self._error, self.asked = error, True
        return self.asked

    def listen(self) -> None:
        for number in ASKING:
            signal.signal(number, self._signalled)

    @contextmanager
    def overheard(self) -> Iterator[None]:
        """Context for work in the caller's own process. Ctrl-C, and signals that a command treats like it, interrupt as
        usual, but inside `deferred` only after the block's next `poll`. A second signal interrupts at once."""
        asked: list[int] = []

        def hear(number: int, frame: FrameType | None) -> None:
            if self.asked or not self._deferred:
                before[number](number, frame)
            self.asked = True
            asked.append(number)

        in_main = threading.current_thread() is threading.main_thread()  # only this thread handles signals
        usual = ((signal.SIGINT, signal.default_int_handler), *((number, as_ctrl_c) for number in TO_END))
        before: dict[int, Callable[[int, FrameType | None], NoReturn]]
        before = {number: handler for number, handler in usual if in_main and signal.getsignal(number) == handler}
        for number in before:
            signal.signal(number, hear)
        try:
            with suppress(Interrupted):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if asked:
            before[asked[0]](asked[0], None)
        if self._error is not None:
            raise self._error

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Context whose block polls by itself, between training steps."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _signalled(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self._deferred:
            raise SystemExit(ENDED_BY_REQUEST)
