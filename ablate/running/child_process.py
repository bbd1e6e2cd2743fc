"""Child processes that answer on a dedicated pipe, so that no library's output is mistaken for an answer."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import IO, NamedTuple

from ablate.machine.environment import environment_of_worker, worker_command
from ablate.training.stop import ENDED_BY_REQUEST

STANDARD_ERROR = 2


class ChildProcess(NamedTuple):
    """A child process, and the pipe of its answers, one a line. Its standard input is a pipe from this process."""

    process: subprocess.Popen[bytes]
    answers: IO[bytes]

    def ask(self, line: str) -> None:
        """Write a line to the child's standard input. Raises BrokenPipeError if the child has died."""
        pipe = self.process.stdin
        if pipe is None:
            raise RuntimeError("the process has no pipe")
        pipe.write(f"{line}\n".encode())

    def kill(self) -> None:
        """Kill the child and close the pipes."""
        self.process.kill()
        self.process.communicate()
        self.answers.close()


def start(
    module: str,
    *arguments: str,
    variables: Mapping[str, str],
    output: IO[bytes] | int = STANDARD_ERROR,
    new_session: bool = False,
) -> ChildProcess:
    """Start `python -m module ANSWERS arguments…`, where ANSWERS is the file descriptor that `answers_to` takes.

    variables: added to the child's environment. output: destination of its standard output and standard error.
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
    return ChildProcess(process, os.fdopen(reading, "rb", buffering=0))


def answers_to(number: str) -> IO[str]:
    """Line-buffered pipe to the parent process, from its file descriptor. Child processes do not inherit the pipe."""
    os.set_inheritable(int(number), False)
    return os.fdopen(int(number), "w", buffering=1, encoding="utf-8")


def end_with_parent() -> None:
    """End this process when its parent dies, even by SIGKILL: standard input, a pipe from the parent, closes then."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(ENDED_BY_REQUEST)

    threading.Thread(target=wait, daemon=True).start()


def forked(work: Callable[[str], int], path: str, *unused: int) -> int:
    """Exit status of `work(path)` in a forked process; negative: the signal that ended it. unused: file descriptors
    that it closes."""
    child = os.fork()
    if child == 0:
        for each in unused:
            os.close(each)
        os._exit(work(path))
    return exit_status(child)


def exit_status(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
