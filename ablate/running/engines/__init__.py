"""Where runs are carried out. One engine per file, `ablate/running/engines/<name>.py` with `build(options) -> Engine`.

An engine only starts workers and says when they end. What is done, and how far the rest has got, is in the store.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ablate.running.options import Options
from ablate.running.request import Request
from ablate.store import AblateError
from zoo.settings.registry import member, members

if TYPE_CHECKING:  # it loads torch
    from ablate.running.rehearsal import Rehearsal, Timed


class EngineError(AblateError):
    """The engine is not available, or cannot do what was requested."""


@dataclass(frozen=True)
class Event:
    """A worker began, or ended well or badly, on the run `digest`."""

    kind: Literal["started", "finished", "failed"]
    digest: str
    error: str | None = None


class Engine(Protocol):
    """Carries out requests."""

    @property
    def device(self) -> str:
        """The device of the workers: "cpu" or "cuda"."""
        ...

    @property
    def here(self) -> bool:
        """Whether workers are on this machine, so that its speed tells theirs."""
        ...

    @property
    def at_once(self) -> int:
        """Number of concurrent runs."""
        ...

    @property
    def where(self) -> str:
        """The device's name; of an engine that finds machines by itself, what it is told to look for."""
        ...

    def run(self, requests: Iterable[Request | None]) -> Generator[Event | None, None, None]:
        """Yield events as they happen, and None at least twice a second in between when that is possible.

        A request is taken when it can begin, so that what comes next may depend on what has ended; None means that
        there is nothing to do yet. A Sequence may be taken as a whole. Ends when every request has finished or failed.
        Closing the iterator early ends all workers.
        """
        ...

    def stop(self, digest: str) -> None:
        """Ask the worker on a run, if there is one, to save its state and end: the run will have failed."""
        ...

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        """Time arms against each other where runs would be, alone or beside as many others. Raises CalibrationError."""
        ...


def names() -> list[str]:
    return members(__name__)


def load(options: Options) -> Engine:
    """The engine that the options name. Raises EngineError, and ArgumentError for a device that does not exist."""
    if options.engine not in names():
        raise EngineError(f"unknown engine '{options.engine}': one of {', '.join(names())}")
    engine: Engine = member(__name__, options.engine).build(options)
    return engine
