"""Engines, which execute runs. One per file, here or in a wing: `<name>.py` with `build(options) -> Engine`.

An engine only starts workers and reports when they end. Results and progress are in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ablate.running.options import Options
from ablate.running.request import Request
from store import AblateError
from store.extensions import added_to
from zoo.settings.registry import member, members

if TYPE_CHECKING:  # it loads torch
    from ablate.running.rehearsal import Rehearsal, Timed


class EngineError(AblateError):
    """The engine is not available, or cannot do what was requested."""


@dataclass(frozen=True)
class Event:
    """A worker started, finished or failed on the run `digest`."""

    kind: Literal["started", "finished", "failed"]
    digest: str
    error: str | None = None


class Engine(Protocol):
    """Executes requests in workers."""

    @property
    def device(self) -> str:
        """The device of the workers: "cpu" or "cuda"."""
        ...

    @property
    def here(self) -> bool:
        """Whether workers run on this machine, so that its measured speed is theirs."""
        ...

    @property
    def at_once(self) -> int:
        """Number of concurrent runs."""
        ...

    @property
    def where(self) -> str:
        """Name of the device; for cluster engines, a description of the resources requested."""
        ...

    def run(
        self, requests: Iterable[Request | None], meanwhile: Callable[[], None] = lambda: None
    ) -> Generator[Event | None, None, None]:
        """Yield events as they happen, and in between None, at least twice a second where possible.

        meanwhile: callback while runs are in progress, about twice a second, and in the caller's process after each
            stretch of steps. It may call `stop`.

        A request is drawn only when a worker can take it, so that requests may depend on earlier results; a request of
        None means that there is nothing to do yet. A Sequence may be drawn as a whole. Ends when every request has
        finished or failed. Closing the iterator early ends all workers.
        """
        ...

    def stop(self, digest: str) -> None:
        """Ask the worker on a run to save its state and end; a run that has not begun does not begin when it is next
        drawn. Either way the run counts as failed."""
        ...

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        """Time arms against each other on the workers' machine. Raises CalibrationError.

        alone: one process at a time; otherwise as many concurrently as there would be runs.
        """
        ...


def names() -> list[str]:
    return members(__name__, *added_to(__name__))


def load(options: Options) -> Engine:
    """Build the engine that the options name. Raises EngineError, and ArgumentError if the device does not exist."""
    if options.engine not in names():
        raise EngineError(f"unknown engine '{options.engine}': one of {', '.join(names())}")
    engine: Engine = member(__name__, options.engine, *added_to(__name__)).build(options)
    return engine
