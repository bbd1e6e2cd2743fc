"""Fork server, which preloads the workers' libraries and forks a worker per request:
`python -m ablate.running.forkserver N`.

Loading torch and lm-eval takes seconds, forking takes milliseconds, and each run still has a process of its own. The
server reads paths of requests from standard input, one at a time, and answers each on file descriptor N with the
worker's exit status (negative: the signal that ended it). Server and worker end when standard input closes.

Wings may have processes that fork some of the workers.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import IO

# Slow to load. Otherwise each worker would load these two itself, when its training begins and when it ends.
import polars  # noqa: F401
import torch._dynamo  # noqa: F401

import ablate.running.phases  # noqa: F401
from ablate.running import worker
from ablate.running.child_process import answers_to, forked
from ablate.running.request import Request
from evals.evaluations import load_imports
from store.extensions import modules_of


def main(answers: IO[str]) -> None:
    load_imports()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to the whole group: the worker ends, and we wait for it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end if nobody reads the answers
    servers = [wing.Programs(_work, answers.fileno()) for wing in modules_of("ablate.running.forkserver")]
    gc.freeze()  # a worker's garbage collection would scan, and so copy, the loaded modules: 0.25 s each
    while path := sys.stdin.readline().rstrip("\n"):
        request = Request.read(Path(path))
        statuses = (each.run(request, path) for each in servers)
        status = next((status for status in statuses if status is not None), None)
        print(forked(_work, path, answers.fileno()) if status is None else status, file=answers)
    os._exit(0)  # an orderly teardown of the loaded modules takes seconds


def _work(path: str) -> int:
    """Run the worker in the child. No exception may escape into the child's copy of the parent's loop."""
    try:
        return worker.work([path, "--end-with-parent"])
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # the child must end here, whatever happened
        sys.excepthook(*sys.exc_info())
        return 1


if __name__ == "__main__":
    main(answers_to(sys.argv[1]))
