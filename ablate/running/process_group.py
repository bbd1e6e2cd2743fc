"""A run on several devices of one machine: `python -m ablate.running.process_group N request.json RANK MEETING` is one
of its processes but the first, which is the run's worker. Only the worker logs, validates, saves and stops.

The worker looks after the others: a process that dies leaves the rest waiting for its gradients, for half an hour with
gloo before the processes have met, and with NCCL at any time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ablate.data import open_corpus
from ablate.machine.numerics import enforce_as
from ablate.running.answering import Answering, answers_to, end_with_parent, start
from ablate.running.request import Request
from ablate.running.scratch import scratch
from ablate.store import Store
from ablate.training.process_group import ALONE, ProcessGroup, ProcessGroupError, joined
from ablate.training.session import Session
from ablate.training.stop import ASKING
from evals.costs.memory import is_out_of_memory

LOOK_SECONDS = 0.5
"""Seconds between two looks at the other processes."""
GRACE_SECONDS = 10.0
"""Seconds that the first process has to end by itself once another has died; then it is ended."""
READY = b"ready\n"


@contextmanager
def process_group_of(request: Request) -> Iterator[ProcessGroup]:
    """The group of a run, of which this process is the first. The others end with the block, however it ends."""
    size = request.execution.devices
    if size == 1:
        yield ALONE
        return
    with scratch() as folder:
        path, meeting = folder / "request.json", folder / "meeting"
        path.write_text(request.to_json(), encoding="utf-8")
        others = [_start(rank, path, meeting) for rank in range(1, size)]
        over = threading.Event()
        threading.Thread(target=_end_without, args=(others, request, over), daemon=True).start()
        try:
            for other in others:  # until all are about to meet
                if other.answers.readline() != READY:
                    other.process.wait()
                    raise ProcessGroupError(_death(others) or "a process of the run ended before it began")
            with joined(meeting, 0, size, request.identity.numerics.device) as group, _explained(others):
                yield group
        finally:
            over.set()
            for other in others:
                other.kill()


@contextmanager
def _explained(others: Sequence[Answering]) -> Iterator[None]:
    """Name the process that died in place of the connection that was lost. Raises ProcessGroupError."""
    try:
        yield
    except RuntimeError as error:  # of torch's process groups
        time.sleep(LOOK_SECONDS)  # its connections close before it can be seen to have ended
        if not is_out_of_memory(error) and (death := _death(others)):
            raise ProcessGroupError(death) from error
        raise


def _end_without(others: Sequence[Answering], request: Request, over: threading.Event) -> None:
    """End this process where it still waits for one that died: nothing else interrupts a sum over GPUs."""
    while not over.wait(LOOK_SECONDS):
        if death := _death(others):
            if not over.wait(GRACE_SECONDS):
                Store(request.store).write_error(request.digest, f"ProcessGroupError: {death}", death)
                os._exit(1)
            return


def _death(others: Sequence[Answering]) -> str | None:
    """Which of them ended before its time, and how."""
    for rank, other in enumerate(others, start=1):
        if status := other.process.poll():
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            return f"process {rank + 1} of {len(others) + 1} {how} (see the run's log)"
    return None


def _start(rank: int, request: Path, meeting: Path) -> Answering:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    own = gpus[rank] if rank < len(gpus) else str(rank)
    return start(
        "ablate.running.process_group",
        *(str(request), str(rank), str(meeting)),
        variables={"CUDA_VISIBLE_DEVICES": own},
        new_session=True,  # who asks the worker to end does not mean the others
    )


def main(arguments: list[str]) -> int:
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)  # the first process saves, and ends us
    end_with_parent()
    answers, request, rank = answers_to(arguments[0]), Request.read(Path(arguments[1])), int(arguments[2])
    answers.write(READY.decode())
    unwatched, wanted = request.identity.model_copy(update={"probes": None}), request.identity.numerics
    with joined(Path(arguments[3]), rank, request.execution.devices, wanted.device) as group:
        corpus, numerics = open_corpus(Path(request.corpus)), enforce_as(wanted, request.threads)
        session = Session(Store(request.store), unwatched, corpus, numerics, request.execution, group=group)
        for _ in session.rehearse():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
