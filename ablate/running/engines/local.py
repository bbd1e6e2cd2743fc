"""Pool of worker processes on this machine, one per run, so that memory is measured per run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ablate.machine.environment import SINGLE_THREADED, cores, device_name
from ablate.machine.numerics import alike_gpus, pick_device, unlike_gpus
from ablate.running.child_process import ChildProcess, start
from ablate.running.engines import Engine, EngineError, Event
from ablate.running.engines._polling import Polling, how_it_ended
from ablate.running.options import Options
from ablate.running.rehearsal import Rehearsal, Timed, rehearse
from ablate.running.request import Request, scratch
from store import Store, processes
from store.claims import Watch
from store.errors import ArgumentError

RESTARTS = 2
"""Maximum number of restarts of a run whose process hangs."""
START_SECONDS = 300.0
"""Seconds that a process may take to load its libraries, on slow machines."""
COMPILE_SECONDS = 1800.0
"""Seconds that it may take to compile a run's program, too."""


def device_here(options: Options) -> str:
    """The device of the options, by default the best one. Raises EngineError for engine settings, as there are none,
    and ArgumentError if there is no CUDA device."""
    if options.engine_settings:
        raise EngineError(f"this engine has no settings: {', '.join(options.engine_settings)}")
    found = pick_device()
    if options.device == "cuda" != found:
        raise ArgumentError("device", "torch finds no CUDA device", options.device)
    return options.device or found


def build(options: Options) -> Engine:
    device = device_here(options)
    if device == "cuda":
        gpus, each = [gpu.place for gpu in alike_gpus()], options.workers_per_gpu
        groups = [gpus[i : i + options.devices] for i in range(0, len(gpus) - options.devices + 1, options.devices)]
        # All groups once, then again: workers share a GPU only if there are more workers than groups.
        places = [{"CUDA_VISIBLE_DEVICES": ",".join(group)} for group in groups * each]
        if not places or (options.workers is not None and options.workers > len(places)):
            shared = f", and --workers-per-gpu {each}" if each > 1 else ""
            spanned = f" of {options.devices} devices" if options.devices > 1 else ""
            wanted = f"{options.workers or 1} workers{spanned}"
            alike = " of one kind" if unlike_gpus() else ""
            raise EngineError(f"{wanted}, but there are {len(gpus)} GPUs{alike}{shared}")
        return Pool("cuda", places[: options.workers])
    return Pool("cpu", [SINGLE_THREADED] * (options.workers or max(1, cores() // options.devices)))


class Pool(Polling):
    """Engine with at most one worker at a time in each of `places`, given by the workers' environment variables."""

    here = True

    def __init__(self, device: str, places: Sequence[Mapping[str, str]]) -> None:
        super().__init__()
        self.device, self.places = device, places
        self._slots: list[Slot] = []

    @property
    def at_once(self) -> int:
        return len(self.places)

    @property
    def where(self) -> str:
        return device_name(self.device)

    @contextmanager
    def opened(self) -> Iterator[None]:
        with scratch() as folder:
            self._slots = [Slot(variables, folder / str(i)) for i, variables in enumerate(self.places)]
            try:
                yield
            finally:
                for slot in self._slots:
                    slot.close()

    def start(self, requests: Sequence[Request]) -> Sequence[Slot]:
        free = [slot for slot in self._slots if slot.request is None][: len(requests)]
        for slot, request in zip(free, requests, strict=True):
            slot.start(request)
        return free

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        return rehearse(request, self.places, alone=alone)


class Slot:
    """A fork server, started on demand and restarted if killed, and the run that its worker executes.

    Server and worker end when our end of the server's standard input closes, however this process ends.
    """

    def __init__(self, variables: Mapping[str, str], prefix: Path) -> None:
        self.variables = variables
        self.request: Request | None = None
        self._path, self._log = prefix.with_suffix(".json"), prefix.with_suffix(".log")
        self._server: ChildProcess | None = None
        self._answer = b""
        self._watch: Watch
        self._restarts = 0

    def start(self, request: Request) -> None:
        self._restarts = 0
        self._start(request)

    def _start(self, request: Request) -> None:
        self._path.write_text(request.to_json(), encoding="utf-8")
        if self._server is not None and self._server.process.poll() is not None:
            self.close()
        if self._server is None:
            with self._log.open("wb") as log:
                # In a new session, Ctrl-C reaches this process alone, which then ends the workers.
                self._server = start(
                    "ablate.running.forkserver", variables=self.variables, output=log, new_session=True
                )
            os.set_blocking(self._server.answers.fileno(), False)
        self.request, self._answer = request, b""
        self._watch = Watch(Store(request.store).run_dir(request.digest), self._server.process.pid)
        with suppress(BrokenPipeError):  # the server has died: `ended` reports it
            self._server.ask(str(self._path))

    def ended(self) -> Event | None:
        """The outcome of the run once it has ended, which frees the slot; None before."""
        if self.request is None or self._server is None:
            return None
        gone = self._server.process.poll()  # before reading, so that a last answer is not missed
        self._answer += self._server.answers.read() or b""
        if not self._answer.endswith(b"\n") and gone is None:
            return self._restarted(self.request, self._server.process.pid)
        request, self.request = self.request, None
        if gone is not None:
            self.close()
        status = int(self._answer) if self._answer.endswith(b"\n") else gone
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        last_words = next((line for line in reversed(lines) if line.strip()), "")
        return how_it_ended(request, status, last_words)

    def _restarted(self, request: Request, group: int) -> Event | None:
        """Restart a worker that hangs, to resume from its checkpoint; a failure event after `RESTARTS` restarts."""
        if not self._stands_still(request, group):
            return None
        self.close()
        self._restarts += 1
        if self._restarts <= RESTARTS:
            self._start(request)
            return None
        self.request = None
        seconds = request.execution.stall_timeout
        error = f"its process sent no heartbeat for {seconds:g} s, {self._restarts} times"
        return Event("failed", request.digest, error)

    def _stands_still(self, request: Request, group: int) -> bool:
        """Whether the worker, or the server that should have started it, has sent no heartbeat for too long."""
        holder = self._watch.holder()
        if holder is None:
            patience = START_SECONDS + (COMPILE_SECONDS if request.identity.train.get("compile") else 0.0)
            return self._watch.silent_seconds > max(patience, request.execution.stall_timeout)
        if holder.host != processes.here() or processes.group(holder.pid) != group:
            return False  # claimed by another command: our worker waits for it, and takes over when it is gone
        return self._watch.is_silent(holder, request.execution.stall_timeout)

    def ask_to_end(self) -> None:
        """Ask the worker, if there is one, to save its state and end."""
        if self.request is not None and self._server is not None:
            with suppress(ProcessLookupError):  # already ended
                os.killpg(self._server.process.pid, signal.SIGTERM)

    def close(self) -> None:
        """Kill server and worker."""
        if self._server is not None:
            with suppress(ProcessLookupError):  # already ended
                os.killpg(self._server.process.pid, signal.SIGKILL)
            self._server.kill()
            self._server = None
