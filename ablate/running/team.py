"""A run on several devices of one machine: `python -m ablate.running.team request.json RANK MEETING` is one of its
processes but the first, which is the run's worker. Only the worker logs, validates, saves and stops.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.data import open_corpus
from ablate.machine.environment import environment_of_worker, worker_command
from ablate.running.lifeline import end_with_parent
from ablate.running.request import Request
from ablate.running.scratch import scratch
from ablate.running.sessions import numerics_of, session_of
from ablate.training.stop import ASKING
from ablate.training.team import ALONE, Team, joined


@contextmanager
def team_of(request: Request) -> Iterator[Team]:
    """The team of a run, of which this process is the first. The others end with the block, however it ends."""
    size = request.execution.devices
    if size == 1:
        yield ALONE
        return
    with scratch() as folder:
        path, meeting = folder / "request.json", folder / "meeting"
        path.write_text(request.to_json(), encoding="utf-8")
        others = [_start(rank, path, meeting) for rank in range(1, size)]
        try:
            with joined(meeting, 0, size, request.identity.numerics.device) as team:
                yield team
        finally:
            for process in others:
                process.kill()
                process.communicate()


def _start(rank: int, request: Path, meeting: Path) -> subprocess.Popen[bytes]:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    own = gpus[rank] if rank < len(gpus) else str(rank)
    return subprocess.Popen(
        worker_command("ablate.running.team", str(request), str(rank), str(meeting)),
        stdin=subprocess.PIPE,  # the lifeline: it ends with us
        stdout=subprocess.DEVNULL,
        env=environment_of_worker({"CUDA_VISIBLE_DEVICES": own}),
        start_new_session=True,  # who asks the worker to end does not mean the others
    )


def main(arguments: list[str]) -> int:
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)  # the first process saves, and ends us
    threading.Thread(target=end_with_parent, daemon=True).start()
    request, rank = Request.read(Path(arguments[0])), int(arguments[1])
    unwatched = request.model_copy(update={"identity": request.identity.model_copy(update={"probes": None})})
    with joined(Path(arguments[2]), rank, request.execution.devices, request.identity.numerics.device) as team:
        corpus = open_corpus(Path(request.corpus))
        for _ in session_of(unwatched, corpus, numerics_of(request), team).rehearse():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
