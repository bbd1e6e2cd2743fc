"""Worker process of one run: `python -m ablate.running.worker request.json [--end-with-parent]`.

Exit status: 0 if all requested documents are in the store, 1 if an exception was written to the run's error.txt, 143 if
the worker was asked to end (SIGTERM) and has saved its state.

A run's log is `log.txt` in its folder for every engine. `ablate logs` prints it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ablate.running.child_process import end_with_parent
from ablate.running.request import Request
from ablate.training.stop import ENDED_BY_REQUEST, Interrupted, StopSignal
from store import LostClaimError, Store

PROJECT_LOG = logging.getLogger("ablate")
DONE = "done"
"""Last line of the log, after the time, once a run's phases are complete."""


class _LogFile(logging.FileHandler):
    """Log file that drops records on a full disk, instead of printing a traceback for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (its name in logging)
        """Drop the record. Files that results depend on raise their own errors when the disk is full."""


@contextmanager
def logged(store: Store, digest: str) -> Iterator[None]:
    """Append log records of this project's modules in the block to the log of a run."""
    handler, level = _LogFile(store.log_path(digest), encoding="utf-8"), PROJECT_LOG.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    PROJECT_LOG.addHandler(handler)
    PROJECT_LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        PROJECT_LOG.removeHandler(handler)
        PROJECT_LOG.setLevel(level)
        with suppress(OSError):  # a full disk, as in `_LogFile`
            handler.close()


def redirect_output(store: Store, digest: str) -> None:
    """Append this process's output to the log of a run, by file descriptor, so that native libraries' is included."""
    path = store.log_path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


LOG = logging.getLogger("ablate.running.worker")  # not __name__, which is __main__ in a worker process


def main(arguments: list[str]) -> int:
    request = Request.read(Path(arguments[0]))
    if "--end-with-parent" in arguments[1:]:
        end_with_parent()
    stop = StopSignal()
    stop.listen()
    # Any exception goes to the run's error.txt, since nobody reads our standard error.
    try:
        carry_out(request, stop)
    except Interrupted:
        return ENDED_BY_REQUEST
    except Exception as error:
        from zoo.settings.registry import place_in_plugin  # noqa: PLC0415 (only a failure needs it)

        summary = f"{type(error).__name__}: {error}{place_in_plugin(error)}".replace("\n", " ")
        Store(request.store).write_error(request.digest, summary, traceback.format_exc())
        return 1
    return 0


def carry_out(request: Request, stop: StopSignal | None = None) -> None:
    """Do the missing phases under a claim on the run. Waits for another process on the run and keeps its results.

    A process that hung for so long that another took over the run waits for that one.
    """
    stop = stop or StopSignal()
    while True:
        with suppress(LostClaimError):
            _do_alone(request, stop)
            return
        if stop.asked:
            raise Interrupted(f"run {request.digest} was taken over by another process")


def _do_alone(request: Request, stop: StopSignal) -> None:
    store = Store(request.store)
    with store.claim(request.digest, request.execution.stall_timeout) as claim, logged(store, request.digest):
        store.drop_error(request.digest)
        try:
            if missing := request.missing():
                LOG.info("to do on %s, process %d: %s", socket.gethostname(), os.getpid(), ", ".join(missing))
                from ablate.running.phases import run_phases  # noqa: PLC0415 (nothing to do needs no torch)

                run_phases(request, stop, claim)
        except Interrupted as end:
            LOG.info("%s, its state saved", end)
            raise
        except LostClaimError as end:
            LOG.info("%s", end)
            raise
        except Exception:
            LOG.exception("failed")
            raise
        LOG.info(DONE)


def work(arguments: list[str]) -> int:
    """`main`, with the process's output redirected to the run's log."""
    request = Request.read(Path(arguments[0]))
    redirect_output(Store(request.store), request.digest)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]))
