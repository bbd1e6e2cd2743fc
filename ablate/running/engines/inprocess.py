"""One run after the other in this process: for debugging. Memory and threads are shared with the caller."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

from ablate.running.engines import Engine, Event, Options
from ablate.running.request import Request
from ablate.running.worker import carry_out


class InProcess:
    """Exceptions of a run are not caught, so that a debugger stops where they are raised."""

    slots: Sequence[Mapping[str, str]] = ({},)

    def run(self, requests: Iterable[Request | None]) -> Generator[Event | None, None, None]:
        for request in requests:
            if request is None:
                yield None
                continue
            yield Event("started", request.digest)
            carry_out(request)
            yield Event("finished", request.digest)

    def stop(self, digest: str) -> None:
        """Nobody can ask while a run goes on."""


def build(_options: Options) -> Engine:
    return InProcess()
