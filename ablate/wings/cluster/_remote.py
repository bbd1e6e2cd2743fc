"""Shared code of engines whose workers are on other machines."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ablate.machine.environment import SINGLE_THREADED, environment_of_worker, worker_command
from ablate.running.engines import Event
from ablate.running.engines._polling import GRACE_SECONDS, how_it_ended
from ablate.running.request import Request, scratch
from ablate.training.stop import ENDED_BY_REQUEST

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

WARNINGS = {-signal.SIGTERM, -signal.SIGUSR1, -signal.SIGUSR2}
"""Exit statuses of a worker that was asked to end before its signal handlers were installed."""
LOOK_SECONDS = 0.1


TRIES = 4
"""Maximum number of times that one command starts a run that is ended from outside."""


class SubmittedRun(ABC):
    """A run submitted to a scheduler, and resubmitted if it was ended from outside.

    handle: the scheduler's handle of the job. again: resubmits the request and returns a new handle.
    """

    def __init__(self, request: Request, handle: Any, again: Callable[[Request], Any]) -> None:
        self.request, self.handle, self.again = request, handle, again
        self._tries, self._asked = 1, False

    @abstractmethod
    def outcome(self) -> tuple[int, str] | None:
        """(exit status of the worker, message) once the job has ended, else None. The status is ENDED_BY_REQUEST if the
        machine was lost."""

    @abstractmethod
    def cancel(self) -> None:
        """Have the worker save its state and end."""

    def ended(self) -> Event | None:
        found = self.outcome()
        if found is None:
            return None
        if found[0] == ENDED_BY_REQUEST and not self._asked and self._tries < TRIES:
            self._tries += 1
            self.handle = self.again(self.request)
            return None
        return how_it_ended(self.request, *found)

    def ask_to_end(self) -> None:
        self._asked = True
        self.cancel()


class Attempt:
    """Callable that executes a request (JSON) in a worker on the machine where it is called, and returns the worker's
    exit status."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._pid: int | None = None

    def __call__(self, request: str) -> int:
        with scratch() as folder:
            path = folder / "request.json"
            path.write_text(request, encoding="utf-8")
            process = subprocess.Popen(
                worker_command("ablate.running.worker", str(path), "--end-with-parent"),
                stdin=subprocess.PIPE,  # the worker ends when this pipe closes, hence with us
                env=environment_of_worker(variables_of(self.device)),
            )
            self._pid = process.pid
            try:
                _wait(process.pid)
            except BaseException:  # whatever ends us, let the worker save its state first
                self.stop()
                raise
            finally:
                self._pid = None
                process.communicate()
        return ENDED_BY_REQUEST if process.returncode in WARNINGS else process.returncode

    def stop(self) -> None:
        """Have the worker save its state and end."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)
            _wait(self._pid, GRACE_SECONDS)

    def checkpoint(self, request: str) -> DelayedSubmission:
        """The submission to queue in place of this job; submitit calls it from a signal handler before Slurm ends the
        job."""
        from submitit.helpers import DelayedSubmission  # noqa: PLC0415 (an extra)

        self.stop()
        return DelayedSubmission(Attempt(self.device), request)


class Attempts:
    """Callable that executes several requests (JSON) at once, each in a worker, and returns their exit statuses."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._each: list[Attempt] = []

    def __call__(self, requests: Sequence[str]) -> list[int]:
        self._each = [Attempt(self.device) for _ in requests]
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(lambda attempt, request: attempt(request), self._each, requests))

    def checkpoint(self, requests: Sequence[str]) -> DelayedSubmission:
        """The submission to queue in place of this job, once its attempts have stopped; called as an `Attempt`'s is."""
        from submitit.helpers import DelayedSubmission  # noqa: PLC0415 (an extra)

        with ThreadPoolExecutor(len(requests)) as threads:
            list(threads.map(Attempt.stop, self._each))
        return DelayedSubmission(Attempts(self.device), requests)


def run_on_node(device: str, request: str) -> int:
    """Execute a request (JSON) on the machine where this is called; returns the worker's exit status."""
    return Attempt(device)(request)


def _wait(pid: int, seconds: float | None = None) -> None:
    """Wait until a child has ended, at most `seconds`. Unlike Popen.wait, takes no lock, so that a signal handler may
    call it during another call."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)


def variables_of(device: str) -> Mapping[str, str]:
    """Environment variables of a worker; the cluster chooses its GPUs."""
    return SINGLE_THREADED if device == "cpu" else {}


def time_on_node(request: str, beside: int, alone: bool) -> str:
    """Time arms on the machine where this is called. Returns a `Timed`, as JSON.

    request: a `Rehearsal`, as JSON. beside: number of concurrent processes, unless `alone`.
    """
    from ablate.running.rehearsal import Rehearsal, rehearse  # noqa: PLC0415 (loads torch, needed only here)

    found = Rehearsal.model_validate_json(request)
    places = [variables_of(found.arms[0].identity.numerics.device)] * beside
    return rehearse(found, places, alone=alone).model_dump_json(by_alias=True)
