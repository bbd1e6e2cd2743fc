"""A fork of the fork server that has loaded one compiled program, and forks the workers of the runs that use it.

Compiling a step takes 20 to 40 seconds, and loading the program from torch's cache 4. A process forked from one that
has the program has it too. Runs of an arm that differ only in seed, length, learning rate or weight decay have one
program. Each program has a process of its own, so that the memory of a run includes no other arm's program.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ablate.data import open_corpus
from ablate.machine.numerics import enforce_as
from ablate.running.request import Request
from ablate.training.compiling import sharing
from ablate.training.session import Session
from ablate.training.spec import timeless
from store import Store

Work = Callable[[str], int]
"""Path of a request → exit status of carrying it out."""
MOST = 8
"""Maximum number of programs that one fork server keeps loaded: each takes some 100 MB."""


def has_program(request: Request) -> bool:
    """Whether a run trains with a compiled program that processes can share.

    On CUDA a run loads its program itself: a process that has used a GPU cannot be forked.
    """
    identity = request.identity
    compiles = bool(identity.train.get("compile")) and "train" in request.missing()
    return compiles and identity.numerics.device == "cpu" and request.execution.devices == 1


def program_of(request: Request) -> str:
    """Everything in a request that its compiled program depends on."""
    train = {name: value for name, value in request.identity.train.items() if name not in timeless()}
    run = request.identity.model_dump(mode="json", include={"model", "numerics", "plugins", "teacher"})
    parts = request.execution.model_dump(include={"microbatch", "recompute"})
    return json.dumps({**run, **parts, "train": train, "corpus": request.corpus}, sort_keys=True)


def load(request: Request) -> Session:
    """Compile the training step of a run, or load it from torch's cache. Its program exists as long as the session."""
    corpus = open_corpus(Path(request.corpus))
    numerics = enforce_as(request.identity.numerics, request.threads)
    session = Session(Store(request.store), request.identity, corpus, numerics, request.execution)
    session.learner.compile(session.reader.batch(1))
    return session


def forked(work: Work, path: str, *unused: int) -> int:
    """Exit status of `work(path)` in a forked process; negative: the signal that ended it. unused: file descriptors
    that it closes."""
    child = os.fork()
    if child == 0:
        for each in unused:
            os.close(each)
        os._exit(work(path))
    return _exit_status(child)


def _exit_status(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class Programs:
    """The processes that have loaded programs, by program; the one used last is the last.

    work: carries out the request at a path, in a process of its own, and returns its exit status. unused: a file
    descriptor that these processes close.
    """

    def __init__(self, work: Work, unused: int) -> None:
        self._work, self._unused = work, unused
        self._servers: dict[str, ProgramServer] = {}

    def run(self, request: Request, path: str) -> int:
        """Exit status of a worker on the request at this path."""
        program = program_of(request)
        server = self._servers.pop(program, None) or self._started(request)
        status = server.run(path)
        if status is None:  # died, perhaps out of memory
            return server.end()
        self._servers[program] = server
        return status

    def _started(self, request: Request) -> ProgramServer:
        while len(self._servers) >= MOST:
            self._servers.pop(next(iter(self._servers))).end()
        return ProgramServer(request, self._work, self._unused)


class ProgramServer:
    """A process that has loaded a program, seen from its parent. It ends when the parent dies."""

    def __init__(self, request: Request, work: Work, unused: int) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            os.close(unused)
            _serve(theirs, request, work)
        theirs.close()
        self._connection = ours
        self._answers = ours.makefile("r", encoding="utf-8")

    def run(self, path: str) -> int | None:
        """Exit status of a worker on the request at this path; None if this process has died."""
        with suppress(BrokenPipeError, ConnectionResetError):  # it died after its last run, and will not answer
            self._connection.sendall(f"{path}\n".encode())
            answer = self._answers.readline()
            return int(answer) if answer.endswith("\n") else None
        return None

    def end(self) -> int:
        """End the process, and return its exit status; negative: the signal that ended it."""
        os.kill(self.pid, signal.SIGKILL)  # if it died by itself, it is a zombie, and keeps its status
        self._answers.close()
        self._connection.close()
        return _exit_status(self.pid)


def _serve(connection: socket.socket, first: Request, work: Work) -> NoReturn:
    """Load the program of the first request, then fork a worker for each path. Never returns."""
    with sharing(), connection.makefile("rw", encoding="utf-8", buffering=1) as asked:
        session = None
        try:
            session = load(first)
        except Exception:  # told in the server's log; the worker, which then compiles for itself, reports it
            sys.excepthook(*sys.exc_info())
        gc.collect()
        gc.freeze()  # as the fork server does
        for path in iter(asked.readline, ""):
            print(forked(work, path.rstrip("\n"), connection.fileno()), file=asked)
        del session  # held until here: its model's program ends with it
    os._exit(0)
