"""A pool of worker processes on this machine, one process per run so that memory is measured per run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch

from ablate.machine.environment import PROJECT, cores
from ablate.running.engines import Engine, EngineError, Event, Options
from ablate.running.request import Request
from ablate.store import Store

POLL_SECONDS = 0.05
GRACE_SECONDS = 15.0
"""How long workers may take to save their state when they are asked to end."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def build(options: Options) -> Engine:
    if options.device == "cuda":
        devices, each = _visible_gpus(), options.workers_per_gpu
        # GPU by GPU, then again, so that few workers share none.
        slots = [{"CUDA_VISIBLE_DEVICES": device} for device in devices * each]
        if options.workers is not None and options.workers > len(slots):
            shared = f", and --workers-per-gpu {each}" if each > 1 else ""
            raise EngineError(f"{options.workers} workers, but there are {len(devices)} GPUs{shared}")
        return Pool(slots[: options.workers])
    return Pool([dict.fromkeys(THREAD_VARIABLES, "1")] * (options.workers or cores()))


def _visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES can be set to for each GPU that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]


class Pool:
    """At most one worker at a time per entry of `slots`: the environment variables of the workers there."""

    def __init__(self, slots: Sequence[Mapping[str, str]]) -> None:
        self.slots = slots
        self._working: list[Slot] = []

    def run(self, requests: Iterable[Request | None]) -> Generator[Event | None, None, None]:
        waiting = _Waiting(requests)
        with tempfile.TemporaryDirectory(prefix="ablate-") as name:
            folder = Path(name)
            self._working = slots = [Slot(variables, folder / str(i)) for i, variables in enumerate(self.slots)]
            try:
                while not waiting.over or any(slot.request for slot in slots):
                    for slot in slots:
                        if slot.request is None and (request := waiting.next()):
                            yield slot.start(request)
                        elif event := slot.ended():
                            yield event
                    yield None
                    time.sleep(POLL_SECONDS)
            finally:
                self._working = []
                _close(slots)

    def stop(self, digest: str) -> None:
        for slot in self._working:
            if slot.request is not None and slot.request.digest == digest:
                slot.ask_to_end()


class _Waiting:
    """Requests, taken one at a time; `over` once there will be no more."""

    def __init__(self, requests: Iterable[Request | None]) -> None:
        self._requests = iter(requests)
        self.over = False

    def next(self) -> Request | None:
        """The next one, or None where there is none yet or none left."""
        if self.over:
            return None
        try:
            return next(self._requests)
        except StopIteration:
            self.over = True
            return None


class Slot:
    """One fork server, started when it is first needed and again if it was killed, and the run that it works on.

    Its standard input is a lifeline: server and worker end when our end of it closes, however we end.
    """

    def __init__(self, variables: Mapping[str, str], prefix: Path) -> None:
        self.variables = variables
        self.request: Request | None = None
        self._path, self._log = prefix.with_suffix(".json"), prefix.with_suffix(".log")
        self._server: subprocess.Popen[bytes] | None = None
        self._answer = b""

    def start(self, request: Request) -> Event:
        self._path.write_text(request.to_json(), encoding="utf-8")
        if self._server is not None and self._server.poll() is not None:
            self.close()
        if self._server is None:
            self._server = self._serve()
        self.request, self._answer = request, b""
        with suppress(BrokenPipeError):  # it has died: `ended` will say so
            _pipe(self._server.stdin).write(f"{self._path}\n".encode())
        return Event("started", request.digest)

    def _serve(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "ablate.running.forkserver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the workers
                env=environment_of_worker(self.variables),
            )
        os.set_blocking(_pipe(server.stdout).fileno(), False)
        return server

    def ended(self) -> Event | None:
        """How the run ended, once it has; the slot is free then."""
        if self.request is None or self._server is None:
            return None
        gone = self._server.poll()  # before reading, so that a last answer is not missed
        self._answer += _pipe(self._server.stdout).read() or b""
        if not self._answer.endswith(b"\n") and gone is None:
            return None
        request, self.request = self.request, None
        if gone is not None:
            self.close()
        return self._verdict(request, int(self._answer) if self._answer.endswith(b"\n") else gone)

    def _verdict(self, request: Request, status: int | None) -> Event:
        if status == 0:
            return Event("finished", request.digest)
        if status is not None and status < 0:
            return Event("failed", request.digest, f"its process was ended by {signal.Signals(-status).name}")
        error = Store(request.store).read_error(request.digest) or self._last_words()
        return Event("failed", request.digest, error or f"its process ended with status {status}")

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def ask_to_end(self) -> None:
        """Ask the worker, if there is one, to save its state and end."""
        if self.request is not None and self._server is not None:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(self._server.pid, signal.SIGTERM)

    def close(self) -> None:
        """End server and worker now."""
        if self._server is not None:
            _pipe(self._server.stdin).close()
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            _pipe(self._server.stdout).close()
            self._server = None


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe that Popen was asked for."""
    if pipe is None:
        raise RuntimeError("the server has no pipe")
    return pipe


def _close(slots: Sequence[Slot]) -> None:
    """Give workers time to save their state, then end all processes."""
    deadline = time.monotonic() + GRACE_SECONDS
    for slot in slots:
        slot.ask_to_end()
    while any(slot.request for slot in slots) and time.monotonic() < deadline:
        for slot in slots:
            slot.ended()
        time.sleep(POLL_SECONDS)
    for slot in slots:
        slot.close()


def environment_of_worker(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process with a slot's variables."""
    return {**os.environ, **variables, "PYTHONPATH": _python_path()}


def _python_path() -> str:
    """Workers import the packages that we run, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(PROJECT), *([inherited] if inherited else [])])
