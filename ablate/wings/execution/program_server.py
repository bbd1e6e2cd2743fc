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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch import Tensor

from ablate.data import open_corpus
from ablate.machine.numerics import enforce_as
from ablate.running.child_process import exit_status, forked
from ablate.running.request import Request
from ablate.training.batch import Loss
from ablate.training.compiling import SHARED, ModelCode
from ablate.training.session import Session
from ablate.training.spec import timeless
from store import Store
from zoo.attend import executed_backends, note

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


class Programs:
    """The processes that have loaded programs, by program; the one used last is the last.

    work: carries out the request at a path, in a process of its own, and returns its exit status. unused: a file
    descriptor that these processes close.
    """

    def __init__(self, work: Work, unused: int) -> None:
        self._work, self._unused = work, unused
        self._servers: dict[str, ProgramServer] = {}

    def run(self, request: Request, path: str) -> int | None:
        """Exit status of a worker on the request at this path; None for a run without a program to share."""
        if not has_program(request):
            return None
        program = program_of(request)
        server = self._servers.pop(program, None)
        if server is None:
            while len(self._servers) >= MOST:
                self._servers.pop(next(iter(self._servers))).end()
            server = ProgramServer(request, self._work, self._unused)
        status = server.run(path)
        if status is None:  # died, perhaps out of memory
            return server.end()
        self._servers[program] = server
        return status


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
        return exit_status(self.pid)


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


# Code that models share.


@dataclass
class SharedCode(ModelCode):
    """Code that the models compiled in a `sharing` block share. copies: the copy of each compiled function. backends:
    attention backends in the programs, which are recorded only while a program is compiled."""

    copies: dict[FunctionType, FunctionType] = field(default_factory=dict)
    backends: set[str] = field(default_factory=set)

    def of(self, function: FunctionType) -> FunctionType:
        """The copy of the function that models share."""
        return self.copies.setdefault(function, super().of(function))

    def told(self, program: Loss) -> Loss:
        """The program, which records the attention backends in it at each pass, as an uncompiled model does."""

        def loss(*tensors: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
            found = program(*tensors, **given)
            for name in tuple(self.backends):
                note(name, gradient=True)
            return found

        return loss


@contextmanager
def sharing() -> Iterator[SharedCode]:
    """Inside the block, let models that are compiled share a program where torch finds that it fits: of two models of
    one spec, the second uses the program of the first, as long as the first exists. Guards of torch.compile compare
    shapes, settings and numerics, and compile again if any differs.

    The backward pass is compiled with the forward pass, because a process that forks others must not run one: torch's
    threads for it would be missing in the fork.
    """
    shared = SharedCode()
    SHARED.append(shared)
    try:
        at_once = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
        with at_once, executed_backends(training=True) as shared.backends:
            yield shared
    finally:
        SHARED.pop()
