"""Call a function in a child process. One that computes on a GPU keeps a context there until it ends: hundreds of MB,
and on a card in exclusive mode the only place. A command's own process measures there what it needs before its runs
start, and must leave nothing behind.

`python -m ablate.machine.apart` is the child: it reads the call from standard input, and writes the result.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from ablate.machine.environment import environment_of_worker, worker_command
from store.errors import AblateError

P = ParamSpec("P")
T = TypeVar("T")


class MeasuringError(AblateError):
    """The child process failed; the message ends with its own last line."""


def near(device: str, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of a function that computes on `device`: called here for a CPU, and in a child process for a GPU."""
    return apart(function, *arguments, **options) if device == "cuda" else function(*arguments, **options)


def apart(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of a function of a module, called in a child process with torch's settings of this one. Raises
    MeasuringError."""
    call = pickle.dumps((torch.get_float32_matmul_precision(), function, arguments, options))
    command, variables = worker_command("ablate.machine.apart"), environment_of_worker({})
    done = subprocess.run(command, input=call, capture_output=True, check=False, env=variables)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        how = lines[-1] if lines else f"its process ended with status {done.returncode}"
        raise MeasuringError(f"this GPU could not be measured: {how}")
    result: T = pickle.loads(done.stdout)
    return result


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no part of the answer
    precision, function, arguments, options = pickle.load(sys.stdin.buffer)
    torch.set_float32_matmul_precision(precision)
    with answers:
        pickle.dump(function(*arguments, **options), answers)


if __name__ == "__main__":
    main()
