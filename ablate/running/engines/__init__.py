"""Where runs are carried out. One engine per file: `ablate/engines/<name>.py` defines `build(options) -> Engine`.

An engine only starts workers and says when they end. What is done, and how far the rest has got, is in the store.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from ablate.running.request import Request
from ablate.store import AblateError


class EngineError(AblateError):
    """The engine is not available, or cannot do what was requested."""


@dataclass(frozen=True)
class Options:
    """`device` is "cpu" or "cuda"; `workers` None lets the engine choose. workers_per_gpu: at most, on each."""

    device: str
    workers: int | None = None
    workers_per_gpu: int = 1


@dataclass(frozen=True)
class Event:
    """A worker began, or ended well or badly, on the run `digest`."""

    kind: Literal["started", "finished", "failed"]
    digest: str
    error: str | None = None


class Engine(Protocol):
    """Carries out requests."""

    @property
    def slots(self) -> Sequence[Mapping[str, str]]:
        """One entry for each run that goes on at once: the environment variables of its worker."""
        ...

    def run(self, requests: Iterable[Request | None]) -> Generator[Event | None, None, None]:
        """Yield events as they happen, and None at least twice a second in between when that is possible.

        A request is taken when there is a slot for it, so that what comes next may depend on what has ended; None
        means that there is nothing to do yet. Ends when every request has finished or failed. Closing the iterator
        early ends all workers.
        """
        ...

    def stop(self, digest: str) -> None:
        """Ask the worker on a run, if there is one, to save its state and end: the run will have failed."""
        ...


class _Module(Protocol):
    def build(self, options: Options) -> Engine: ...


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def load(name: str, options: Options) -> Engine:
    """The engine of that name. Raises EngineError."""
    if name not in names():
        raise EngineError(f"unknown engine '{name}': one of {', '.join(names())}")
    return cast(_Module, importlib.import_module(f"ablate.running.engines.{name}")).build(options)
