"""Engine that runs jobs on a Slurm cluster, through submitit: one job per run, or per `--workers-per-gpu` runs, which
share its GPU, in job arrays where possible.

Settings are options of sbatch: `partition=gpu`, `time=4:00:00`, `gres=gpu:h100:1`. `cluster=local` starts the jobs on
this machine instead. Jobs need the store, the corpora and this installation under the same paths as here.

When Slurm signals a job before its time limit or preemption, the job saves its state and is requeued. A job that lost
its node, or was killed without a signal, is submitted again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from ablate.machine.environment import environment_of_worker
from ablate.machine.numerics import pick_device
from ablate.running.engines import Engine, EngineError
from ablate.running.engines._polling import Polling
from ablate.running.options import Options
from ablate.running.rehearsal import CalibrationError, Rehearsal, Timed
from ablate.running.request import Request
from ablate.training.stop import ENDED_BY_REQUEST
from ablate.wings.cluster._remote import Attempt, Attempts, SubmittedRun, time_on_node
from store import Store

AT_ONCE = 16
"""Default number of concurrent jobs."""
MINUTES = 240
"""Default time limit of a job. A longer run continues in the next job."""
CPUS_PER_GPU = 4
"""Default number of CPUs per GPU: one issues operations, others read batches, compile and score answers. Many clusters
give one CPU by default."""
TIMEOUTS = 1000
"""Maximum number of times that a run may reach its time limit: large, as the run makes progress each time."""
LOST = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED", "REQUEUED"}
"""Job states after which a run is submitted again."""
FINAL = {"CANCELLED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE"}
"""Job states after which a run is not submitted again: it would end so again, or was cancelled on purpose."""
OURS = {"array", "error", "nodes", "ntasks", "open-mode", "output", "signal"}
"""Options of sbatch that the engine sets itself."""


def build(options: Options) -> Engine:
    if importlib.util.find_spec("submitit") is None:
        raise EngineError("the engine slurm needs the package submitit: pip install submitit")
    settings = {name.replace("_", "-"): value for name, value in (options.engine_settings or {}).items()}
    local = settings.pop("cluster", "slurm") == "local"
    if refused := OURS & settings.keys():
        raise EngineError(f"--slurm {min(refused)}=… is set by the engine: leave it out")
    if not local and shutil.which("sbatch") is None:
        raise EngineError("there is no sbatch here; --slurm cluster=local starts the jobs on this machine")
    device = options.device or (pick_device() if local else "cuda")
    return Slurm(device, options.workers or AT_ONCE, settings, local, options.devices, options.workers_per_gpu)


class Slurm(Polling):
    """Engine on a Slurm cluster. settings: options of sbatch, spelt with hyphens."""

    poll_seconds = 0.5
    here = False

    def __init__(
        self,
        device: str,
        at_once: int,
        settings: Mapping[str, str],
        local: bool = False,
        devices: int = 1,
        together: int = 1,
    ) -> None:
        """together: number of runs in a job."""
        super().__init__()
        self.devices, self.together = devices, together
        self.device, self._at_once, self.settings, self.local = device, at_once, dict(settings), local
        self.minutes = minutes(self.settings.pop("time", str(MINUTES)))
        if device == "cuda" and not any("gpu" in name or name == "gres" for name in self.settings):
            self.settings["gpus-per-node"] = str(devices)
        if not any(name.startswith("cpus-per") for name in self.settings):
            self.settings["cpus-per-task"] = str(together * devices * (CPUS_PER_GPU if device == "cuda" else 1))

    @property
    def at_once(self) -> int:
        return self._at_once

    @property
    def where(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{'local jobs' if self.local else 'Slurm'} {options}".rstrip()

    def capacity(self, requests: Iterable[Request | None]) -> int:
        """Maximum number of runs in progress: all of a Sequence, as one job array of which Slurm runs `at_once` at a
        time; else `at_once`."""
        return len(requests) if isinstance(requests, Sequence) and not self.local else self.at_once

    def start(self, requests: Sequence[Request]) -> Sequence[SlurmJob]:
        store = requests[0].store
        texts = [request.to_json() for request in requests]

        def again(request: Request) -> Any:
            return self._submit(request.store, Attempt(self.device), [request.to_json()])[0]

        if self.together == 1:
            jobs = self._submit(store, Attempt(self.device), texts)
        else:
            groups = [texts[start : start + self.together] for start in range(0, len(texts), self.together)]
            packed = zip(self._submit(store, Attempts(self.device), groups), groups, strict=True)
            jobs = [run for job, group in packed for run in runs_of(job, len(group))]
        return [SlurmJob(request, job, again) for request, job in zip(requests, jobs, strict=True)]

    def _submit(self, store: str, function: Callable[..., Any], *arguments: Sequence[object]) -> list[Any]:
        """Submit a job per item of `arguments`. Raises EngineError."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError  # noqa: PLC0415 (an extra)

        executor = self._executor(Store(store).slurm_dir)
        try:
            with _importable():
                return list(executor.map_array(function, *arguments))
        except (FailedJobError, FailedSubmissionError) as error:
            raise EngineError(f"Slurm refused the job: {' '.join(str(error).split())}") from error

    def _executor(self, folder: Path) -> Any:
        import submitit  # noqa: PLC0415 (an extra)

        if self.local:
            executor = submitit.LocalExecutor(folder, max_num_timeout=TIMEOUTS)
            executor.update_parameters(
                timeout_min=self.minutes, gpus_per_node=self.devices if self.device == "cuda" else 0
            )
            return executor
        executor = submitit.SlurmExecutor(folder, max_num_timeout=TIMEOUTS)
        executor.update_parameters(
            job_name="ablate",
            time=self.minutes,
            array_parallelism=max(1, self.at_once // self.together),
            additional_parameters={"requeue": True, **self.settings},
        )
        return executor

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        (job,) = self._submit(request.store, time_on_node, [request.to_json()], [1], [alone])
        try:
            found = Timed.model_validate_json(job.result())
            _remove_files(job)
            return found
        except RuntimeError as error:  # submitit's
            reason = str(error).strip().splitlines()[-1]
            raise CalibrationError(f"speeds could not be measured: {reason}") from error
        finally:
            if not job.done():
                job.cancel(check=False)


class SharedRun:
    """One of several runs of a job, with the interface of submitit's jobs.

    asked, well: the runs of the job that were asked to end, and those that ended well, out of `count`. Slurm cancels
    whole jobs, so this one is cancelled when all its runs have been asked to end; until then a run goes on.
    """

    def __init__(self, job: Any, place: int, count: int, asked: set[int], well: set[int]) -> None:
        self.job, self.place, self.count, self.asked, self.well = job, place, count, asked, well
        self.job_id, self.paths, self.done = job.job_id, job.paths, job.done

    @property
    def state(self) -> str:
        state: str = self.job.state
        return state

    def result(self) -> int:
        statuses: list[int] = self.job.result()
        return statuses[self.place]

    def cancel(self, check: bool = True) -> None:
        self.asked.add(self.place)
        if len(self.asked) == self.count:
            self.job.cancel(check=check)

    def remove_files(self) -> None:
        self.well.add(self.place)
        if len(self.well) == self.count:
            _remove_files(self.job)


def runs_of(job: Any, count: int) -> list[SharedRun]:
    """The runs of a job that executes `count` of them."""
    asked, well = set[int](), set[int]()
    return [SharedRun(job, place, count, asked, well) for place in range(count)]


class SlurmJob(SubmittedRun):
    def outcome(self) -> tuple[int, str] | None:
        job = self.handle
        if not job.done():
            return None
        try:
            status = job.result()
        except Exception as error:  # submitit's errors, and any that the job raised
            state = job.state.split()[0]
            said = f"Slurm job {job.job_id}: {state} (see {job.paths.stderr})"
            is_lost = state in LOST or (_was_killed(error) and state not in FINAL)
            ours = "JobError" in type(error).__name__
            return ENDED_BY_REQUEST if is_lost else 1, said if ours else f"{said}: {error}"
        if status == 0:
            job.remove_files() if isinstance(job, SharedRun) else _remove_files(job)
        return status, ""

    def cancel(self) -> None:
        self.handle.cancel(check=False)


def _was_killed(error: Exception) -> bool:
    """Whether a job was killed: it left no result and no exception, or only part of one."""
    from submitit.core.utils import UncompletedJobError  # noqa: PLC0415 (an extra)

    return type(error) is UncompletedJobError or isinstance(error, EOFError | UnpicklingError)


def _remove_files(job: Any) -> None:
    """Remove submitit's files of a job: arguments, result, output."""
    for path in job.paths.folder.glob(f"{job.job_id}_*"):
        path.unlink(missing_ok=True)


@contextmanager
def _importable() -> Iterator[None]:
    """Put a worker's variables in our environment, which jobs inherit, so that they import the same packages."""
    before = dict(os.environ)
    os.environ.update(environment_of_worker({}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def minutes(text: str) -> int:
    """Minutes, at least 1, of a time in sbatch's formats: `minutes`, `minutes:seconds`, `hours:minutes:seconds`,
    `days-hours`, `days-hours:minutes`, `days-hours:minutes:seconds`.

    Raises EngineError.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise EngineError(f"--slurm time={text}: expected minutes, hours:minutes:seconds or days-hours")
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:
        seconds = 3600 * first + 60 * second + third
    else:
        seconds = 60 * first + second
    return max(1, (86400 * days + seconds) // 60)
