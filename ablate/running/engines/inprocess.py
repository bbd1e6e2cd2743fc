"""Sequential runs in this process, for debugging. Runs share memory and threads with the caller."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

from ablate.machine.environment import device_name
from ablate.running.engines import Engine, Event
from ablate.running.engines.local import device_here
from ablate.running.options import Options
from ablate.running.rehearsal import Rehearsal, Timed, rehearse
from ablate.running.request import Request
from ablate.running.worker import carry_out
from ablate.training.stop import StopSignal


@dataclass
class InProcess:
    """Engine that does not catch a run's exceptions, so that a debugger stops where they are raised."""

    device: str
    here: bool = True
    at_once: int = 1
    _signals: dict[str, StopSignal] = field(default_factory=dict)
    """The signal of the run in progress, and of runs that were stopped before they began, by digest."""

    @property
    def where(self) -> str:
        return device_name(self.device)

    def run(
        self, requests: Iterable[Request | None], meanwhile: Callable[[], None] = lambda: None
    ) -> Generator[Event | None, None, None]:
        self._signals.clear()
        for request in requests:
            if request is None:
                yield None
                continue
            stop = self._signals.setdefault(request.digest, StopSignal(meanwhile))
            if not stop.asked:
                yield Event("started", request.digest)
                with stop.overheard():
                    carry_out(request, stop)
            del self._signals[request.digest]
            yield Event("failed", request.digest, "stopped") if stop.asked else Event("finished", request.digest)

    def stop(self, digest: str) -> None:
        self._signals.setdefault(digest, StopSignal()).asked = True

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        return rehearse(request, [{}], alone=alone)


def build(options: Options) -> Engine:
    return InProcess(device_here(options))


def run_here(request: Request, device: str) -> None:
    """Execute one request in this process. Raises ArgumentError for a device that does not exist."""
    for _ in build(Options.of({"device": device})).run([request]):
        pass
