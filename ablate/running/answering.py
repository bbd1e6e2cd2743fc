"""Processes of ours that answer on a pipe of their own, so that nothing a library prints is taken for an answer."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, NamedTuple

from ablate.machine.environment import environment_of_worker, worker_command
from ablate.training.stop import ENDED_BY_REQUEST

STANDARD_ERROR = 2


class Answering(NamedTuple):
    """A process, and the pipe that it writes lines to. Its standard input is a pipe from us."""

    process: subprocess.Popen[bytes]
    answers: IO[bytes]

    def ask(self, line: str) -> None:
        """Write a line to its standard input. Raises BrokenPipeError where it has died."""
        pipe = self.process.stdin
        if pipe is None:
            raise RuntimeError("the process has no pipe")
        pipe.write(f"{line}\n".encode())

    def kill(self) -> None:
        """End it now, and close the pipes."""
        self.process.kill()
        self.process.communicate()
        self.answers.close()


def start(
    module: str,
    *arguments: str,
    variables: Mapping[str, str],
    output: IO[bytes] | int = STANDARD_ERROR,
    new_session: bool = False,
) -> Answering:
    """Start `python -m module ANSWERS arguments…`, where ANSWERS is the number that `answers_to` takes.

    variables: added to its environment. output: takes all that it prints.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            worker_command(module, str(writing), *arguments),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            bufsize=0,
            pass_fds=[writing],
            start_new_session=new_session,
            env=environment_of_worker(variables),
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return Answering(process, os.fdopen(reading, "rb", buffering=0))


def answers_to(number: str) -> IO[str]:
    """The pipe to whoever started this process, sent line by line. Processes started from here do not hold it open."""
    os.set_inheritable(int(number), False)
    return os.fdopen(int(number), "w", buffering=1, encoding="utf-8")


def end_with_parent() -> None:
    """End this process when its parent dies: standard input is a pipe from it, which closes then, even by SIGKILL."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(ENDED_BY_REQUEST)

    threading.Thread(target=wait, daemon=True).start()
