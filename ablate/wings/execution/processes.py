"""A run on several devices of one machine. Rank 0 is the run's worker, which alone logs, validates, saves and stops.
`python -m ablate.wings.execution.processes N request.json RANK MEETING` is any other rank.

The worker monitors the other processes: if one dies, the rest would wait half an hour for its gradients (with gloo
before the rendezvous, with NCCL at any time).
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

import zoo
from ablate.data import open_corpus
from ablate.machine.numerics import enforce_as
from ablate.running.child_process import ChildProcess, answers_to, end_with_parent, start
from ablate.running.request import Request, scratch
from ablate.training.batch import ProcessGroup
from ablate.training.execution import Execution
from ablate.training.session import Session
from ablate.training.spec import PARTS, TrainSpec
from ablate.training.stop import ASKING
from ablate.wings.execution.data_parallel import ProcessGroupError, joined
from evals.costs.memory import is_out_of_memory
from store import Store
from store.documents import RunDocument
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.spec import ModelSpec

LOOK_SECONDS = 0.5
"""Seconds between two checks of the other processes."""
GRACE_SECONDS = 10.0
"""Seconds that rank 0 has to end by itself after another process has died; then it is ended."""
READY = b"ready\n"


@contextmanager
def process_group_of(request: Request) -> Iterator[ProcessGroup]:
    """Process group of a run, with this process as rank 0. The other processes end with the block, however it ends.

    Raises ProcessGroupError if the run cannot be trained so.
    """
    size, train, model = request.execution.devices, TrainSpec.of(request.identity), zoo.parse(request.identity.model)
    if reason := refusal(request.identity, train, model, request.execution):
        raise ProcessGroupError(reason)
    with scratch() as folder:
        path, meeting = folder / "request.json", folder / "meeting"
        path.write_text(request.to_json(), encoding="utf-8")
        others = [_start(rank, path, meeting) for rank in range(1, size)]
        over = threading.Event()
        threading.Thread(target=_end_without, args=(others, request, over), daemon=True).start()
        try:
            for other in others:  # wait until all are ready for the rendezvous
                if other.answers.readline() != READY:
                    other.process.wait()
                    raise ProcessGroupError(_death(others) or "a process of the run ended before it began")
            device, shard = request.identity.numerics.device, request.execution.shard
            with joined(meeting, 0, size, device, shard=shard) as group, _explained(others):
                yield group
        finally:
            over.set()
            for other in others:
                other.kill()


@contextmanager
def _explained(others: Sequence[ChildProcess]) -> Iterator[None]:
    """Replace torch's error of a lost connection by a ProcessGroupError that names the process that died."""
    try:
        yield
    except RuntimeError as error:  # of torch's process groups
        time.sleep(LOOK_SECONDS)  # a dying process closes its connections before its exit can be seen
        if not is_out_of_memory(error) and (death := _death(others)):
            raise ProcessGroupError(death) from error
        raise


def _end_without(others: Sequence[ChildProcess], request: Request, over: threading.Event) -> None:
    """End this process if it still waits for one that died: nothing else interrupts an all-reduce over GPUs."""
    while not over.wait(LOOK_SECONDS):
        if death := _death(others):
            if not over.wait(GRACE_SECONDS):
                Store(request.store).write_error(request.digest, f"ProcessGroupError: {death}", death)
                os._exit(1)
            return


def _death(others: Sequence[ChildProcess]) -> str | None:
    """Which process failed, and how; None if none did."""
    for rank, other in enumerate(others, start=1):
        if status := other.process.poll():
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            return f"process {rank + 1} of {len(others) + 1} {how} (see the run's log)"
    return None


def _start(rank: int, request: Path, meeting: Path) -> ChildProcess:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    own = gpus[rank] if rank < len(gpus) else str(rank)
    return start(
        "ablate.wings.execution.processes",
        *(str(request), str(rank), str(meeting)),
        variables={"CUDA_VISIBLE_DEVICES": own},
        new_session=True,  # signals that ask the worker to end must not reach the others
    )


def refusal(run: RunDocument, train: TrainSpec, model: ModelSpec, execution: Execution) -> str | None:
    """Why a run cannot be trained on several devices with these settings; None if it can."""
    option, devices = f"`--devices {execution.devices}`", execution.devices
    if model.couples_rows is not None:
        return f"{option}: a batch cannot be split: {model.couples_rows}"
    if train.batch % devices:
        return f"{option}: a batch of {train.batch} rows cannot be split evenly across {devices} devices"
    if not execution.shard:
        return None
    unfit = {
        **{f"`train.{name}`": getattr(train, name) is not None for name in PARTS},
        "`train.average`": train.average is not None,
        "`train.compile` (add `--set train.compile=false`)": train.compile,
        "a teacher": run.teacher is not None,
        "probes": run.probes is not None,
        f"the optimizer {train.optimizer.kind}": train.optimizer.kind != "adamw",
        **{str(part): True for part in unsupported(model, Operation.SHARDING)},
    }
    found = next((name for name, is_there in unfit.items() if is_there), None)
    return None if found is None else f"`--shard` does not support {found}"


def main(arguments: list[str]) -> int:
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)  # rank 0 saves, and then ends us
    end_with_parent()
    answers, request, rank = answers_to(arguments[0]), Request.read(Path(arguments[1])), int(arguments[2])
    answers.write(READY.decode())
    unwatched, wanted = request.identity.model_copy(update={"probes": None}), request.identity.numerics
    size, shard = request.execution.devices, request.execution.shard
    with joined(Path(arguments[3]), rank, size, wanted.device, shard=shard) as group:
        corpus, numerics = open_corpus(Path(request.corpus)), enforce_as(wanted, request.threads)
        session = Session(Store(request.store), unwatched, corpus, numerics, request.execution, group=group)
        for _ in session.rehearse():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
