"""Where runs are carried out. One engine per file, `ablate/running/engines/<name>.py` with `build(options) -> Engine`.

An engine only starts workers and says when they end. What is done, and how far the rest has got, is in the store.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, cast

from ablate.errors import ArgumentError
from ablate.running.request import Request
from ablate.store import AblateError
from zoo.registry import member, members

if TYPE_CHECKING:  # it loads torch
    from ablate.running.rehearsal import Rehearsal, Timed


class EngineError(AblateError):
    """The engine is not available, or cannot do what was requested."""


@dataclass(frozen=True)
class Options:
    """`device` is "cpu" or "cuda", and None leaves it to the engine, as None does of `workers`. workers_per_gpu: at
    most, on each. `settings` are the engine's own. devices: of each run."""

    device: str | None = None
    workers: int | None = None
    workers_per_gpu: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    devices: int = 1


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
        """What workers compute on: "cpu" or "cuda"."""
        ...

    @property
    def here(self) -> bool:
        """Whether workers are on this machine, so that its speed tells theirs."""
        ...

    @property
    def at_once(self) -> int:
        """How many runs go on at the same time."""
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


class _Module(Protocol):
    def build(self, options: Options) -> Engine: ...


def names() -> list[str]:
    return members(__name__)


def load(name: str, options: Options) -> Engine:
    """The engine of that name. Raises EngineError, and ArgumentError for a device that is not there."""
    if name not in names():
        raise EngineError(f"unknown engine '{name}': one of {', '.join(names())}")
    if options.device not in (None, "cpu", "cuda"):
        raise ArgumentError("device", "expected cpu or cuda", options.device)
    return cast(_Module, member(__name__, name)).build(options)
