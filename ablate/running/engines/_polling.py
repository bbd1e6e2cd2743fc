"""Shared code of engines that start workers in other processes and poll them."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ablate.running.engines import Event
from ablate.running.request import Request
from store import Store
from store.claims import Watch

GRACE_SECONDS = 15.0
"""Seconds that workers have to save their state after they are asked to end."""
LOOK_SECONDS = 0.5
"""Seconds between calls of `meanwhile`."""


class RunHandle(Protocol):
    """Handle of a run that a worker executes."""

    def ended(self) -> Event | None:
        """The outcome once the worker has ended; None before."""
        ...

    def ask_to_end(self) -> None:
        """Ask the worker, if it is still alive, to save its state and end."""
        ...


class Polling(ABC):
    """Base of engines that start runs and poll their handles."""

    poll_seconds = 0.05

    def __init__(self) -> None:
        self._working: dict[str, RunHandle] = {}
        self._stopped: set[str] = set()
        """Digests of runs that were stopped before they began."""

    @property
    @abstractmethod
    def at_once(self) -> int: ...

    @abstractmethod
    def start(self, requests: Sequence[Request]) -> Sequence[RunHandle]:
        """Start runs. `capacity` limits the number of runs in progress."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Context around all runs. On exit, an override has to end the workers that are still alive."""
        yield

    def capacity(self, _requests: Iterable[Request | None]) -> int:
        """Maximum number of runs in progress."""
        return self.at_once

    def run(
        self, requests: Iterable[Request | None], meanwhile: Callable[[], None] = lambda: None
    ) -> Generator[Event | None, None, None]:
        waiting, looked = _Waiting(requests), 0.0
        self._stopped.clear()
        with self.opened():
            try:
                while not waiting.over or self._working:
                    yield from self._begin(waiting.take(self.capacity(requests) - len(self._working)))
                    yield from self._endings()
                    if time.monotonic() - looked >= LOOK_SECONDS:
                        meanwhile()
                        looked = time.monotonic()
                    yield None
                    time.sleep(self.poll_seconds)
            finally:
                # Give workers time to save their state.
                for work in self._working.values():
                    work.ask_to_end()
                deadline = time.monotonic() + GRACE_SECONDS
                while self._working and time.monotonic() < deadline:
                    list(self._endings())
                    time.sleep(self.poll_seconds)
                self._working = {}

    def _begin(self, taken: Sequence[Request]) -> Iterator[Event]:
        requests = [request for request in taken if request.digest not in self._stopped]
        for digest in {request.digest for request in taken} & self._stopped:
            self._stopped.remove(digest)
            yield Event("failed", digest, "stopped")
        for request in requests:  # workers drop stale errors too, but may die before they do
            Store(request.store).drop_error(request.digest)
        if requests:
            self._working |= zip((request.digest for request in requests), self.start(requests), strict=True)
        for request in requests:
            yield Event("started", request.digest)

    def _endings(self) -> Iterator[Event]:
        for digest, work in list(self._working.items()):
            if (event := work.ended()) is not None:
                del self._working[digest]
                yield event

    def stop(self, digest: str) -> None:
        if (work := self._working.get(digest)) is not None:
            work.ask_to_end()
        else:
            self._stopped.add(digest)


class _Waiting:
    """Queue of requests, drawn one at a time; `over` once there will be no more.

    Runs claimed by another command are held back until it has ended them, or nothing else is left to do: a worker on
    such a run waits for the other command.
    """

    def __init__(self, requests: Iterable[Request | None]) -> None:
        self._requests = iter(requests)
        self._held: list[Request] = []
        self._ended = False

    @property
    def over(self) -> bool:
        return self._ended and not self._held

    def take(self, limit: int) -> list[Request]:
        """Take up to `limit` requests that are available now: unclaimed ones first, then claimed ones."""
        taken: list[Request] = []
        held: list[Request] = []
        while len(taken) < limit and (request := self._held.pop(0) if self._held else self._unseen()) is not None:
            watch = Watch(Store(request.store).run_dir(request.digest))
            holder = watch.holder()
            is_held = holder is not None and not watch.is_gone(holder, request.execution.stall_timeout)
            (held if is_held else taken).append(request)
        spare = max(0, limit - len(taken))
        self._held[:0] = held[spare:]
        return taken + held[:spare]

    def _unseen(self) -> Request | None:
        """The next request from the iterator; None if there is none yet, or none left."""
        found = next(self._requests, self)
        self._ended = found is self
        return found if isinstance(found, Request) else None


def how_it_ended(request: Request, status: int | None, said: str = "") -> Event:
    """The event of a worker's end. status: its exit status, negative for a signal. said: last line of output outside
    the run's own log."""
    if status == 0:
        return Event("finished", request.digest)
    if status is not None and status < 0:
        return Event("failed", request.digest, f"its process was ended by {signal.Signals(-status).name}")
    error = Store(request.store).read_error(request.digest) or said
    return Event("failed", request.digest, error or f"its process ended with status {status}")
