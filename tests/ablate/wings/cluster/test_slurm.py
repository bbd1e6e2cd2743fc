"""The engine slurm: what it tells sbatch, whose fault it is when a job ends, and runs through submitit's local jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace

import pytest

import ablate
from ablate.cli import main
from ablate.running.engines import EngineError, Event, load
from ablate.running.options import Options
from ablate.running.request import Request
from ablate.training.stop import ENDED_BY_REQUEST
from ablate.wings.cluster._remote import TRIES, Attempts
from ablate.wings.cluster.slurm import Slurm, SlurmJob, minutes, runs_of
from store import Store
from tests.ablate.conftest import identity_of
from tests.ablate.test_kill import outcome

pytest.importorskip("submitit", reason="the extra slurm is not installed")


def request_of(folder: Path, seed: int = 0) -> Request:
    return Request(store=str(folder / "runs"), corpus=str(folder / "none"), identity=identity_of(seed=seed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("120", 120), ("90:30", 90), ("2:00:00", 120), ("1-12", 36 * 60), ("1-12:30", 36 * 60 + 30), ("0:20", 1)],
)
def test_times_are_read_as_sbatch_reads_them(text: str, expected: int) -> None:
    assert minutes(text) == expected


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script of the last job: what passes for a cluster keeps it and runs nothing."""
    kept, programs = tmp_path / "submitted.sh", tmp_path / "bin"
    programs.mkdir()
    for name, text in {"sbatch": f'cp "$1" {kept}; echo Submitted batch job 12', "srun": "", "sacct": ""}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return kept


def test_many_runs_are_one_array_and_options_reach_sbatch(sbatch: Path, tmp_path: Path) -> None:
    engine = load(
        Options(engine="slurm", workers=2, engine_settings={"partition": "gpu", "time": "1-12", "mem_per_cpu": "4G"})
    )
    assert isinstance(engine, Slurm)
    requests = [request_of(tmp_path, seed) for seed in range(3)]
    assert engine.capacity(requests) == 3
    assert engine.capacity(iter(requests)) == 2  # what comes later may depend on what has ended
    jobs = engine.start(requests)
    assert [job.handle.job_id for job in jobs] == ["12_0", "12_1", "12_2"]
    script = sbatch.read_text()
    wanted = [
        "array=0-2%2",
        "partition=gpu",
        "time=2160",
        "mem-per-cpu=4G",
        "gpus-per-node=1",
        "cpus-per-task=4",
        "requeue",
    ]
    assert [line for line in wanted if f"#SBATCH --{line}\n" not in script] == []
    assert engine.where == "Slurm cpus-per-task=4 gpus-per-node=1 mem-per-cpu=4G partition=gpu"


@pytest.mark.parametrize(
    ("settings", "devices", "asked"),
    [
        ({}, 2, "cpus-per-task=8"),
        ({"cpus_per_gpu": "7"}, 1, "cpus-per-gpu=7"),
        ({"cpus-per-task": "9"}, 1, "cpus-per-task=9"),
    ],
)
def test_a_job_has_processors_beside_its_gpus(
    sbatch: Path, tmp_path: Path, settings: dict[str, str], devices: int, asked: str
) -> None:
    engine = load(Options(engine="slurm", devices=devices, engine_settings=settings))
    assert isinstance(engine, Slurm)
    engine.start([request_of(tmp_path)])
    assert [line for line in sbatch.read_text().splitlines() if "cpus" in line] == [f"#SBATCH --{asked}"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(engine="slurm", engine_settings={"array": "0-3"}), "--slurm array=… is set by the engine"),
        (Options(engine="slurm", engine_settings={"time": "soon"}), "--slurm time=soon: expected minutes"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(sbatch: Path, options: Options, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(options)


def test_runs_that_share_a_gpu_share_a_job(sbatch: Path, tmp_path: Path) -> None:
    """Five runs, two to a job: three jobs. A job is cancelled with the last of its runs; each run has a status."""
    engine = load(Options(engine="slurm", workers=4, workers_per_gpu=2))
    assert isinstance(engine, Slurm)
    runs = engine.start([request_of(tmp_path, seed) for seed in range(5)])
    assert [run.handle.job_id for run in runs] == ["12_0", "12_0", "12_1", "12_1", "12_2"]
    script = sbatch.read_text()
    assert "#SBATCH --array=0-2%2\n" in script and "#SBATCH --cpus-per-task=8\n" in script

    job = Fake(0)
    cancelled: list[Fake] = []
    job.result = lambda: [0, 1]  # type: ignore[method-assign,assignment,return-value]
    job.cancel = lambda check: cancelled.append(job)  # type: ignore[method-assign]
    good, bad = (SlurmJob(request_of(tmp_path, seed), run, lambda _: None) for seed, run in enumerate(runs_of(job, 2)))
    assert (good.outcome(), bad.outcome()) == ((0, ""), (1, ""))
    good.ask_to_end()
    assert not cancelled
    bad.ask_to_end()
    assert cancelled == [job]


@pytest.mark.slow
@pytest.mark.processes
def test_requests_of_one_job_are_executed_at_once(study: Path, tmp_path: Path) -> None:
    """Statuses are in the order of the requests, here of a run that ends well and one without its text."""
    store = tmp_path / "runs"
    planned = ablate.plan(study, store=store, scale="cpu", sets={"seeds": 1}, device="cpu", progress=False)
    identity = planned.planned[0].runs[0].identity
    ablate.prepare(study, store=store, scale="cpu", progress=False)
    there = store.resolve() / "data" / identity.data.digest
    good = Request(store=str(store.resolve()), corpus=str(there), identity=identity)
    bad = Request(store=str(store.resolve()), corpus=str(tmp_path / "none"), identity=identity_of(seed=5))
    assert Attempts("cpu")([good.to_json(), bad.to_json()]) == [0, 1]
    assert Store(store).status(good.digest) == "finished"
    assert Store(store).read_error(bad.digest) is not None


def test_without_slurm_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(tmp_path), "--scale", "smoke"]
    assert main(["run", "norm_placement", "--engine", "slurm", *where]) == 2
    assert "there is no sbatch here; --slurm cluster=local" in capsys.readouterr().err
    assert main(["run", "norm_placement", "--slurm", "partition=gpu", *where]) == 2
    assert capsys.readouterr().err == "ablate: --slurm is for --engine slurm, not for --engine local\n"


class Fake:
    """A job that ends with a status, or that Slurm ends in some state."""

    job_id, paths = "7", SimpleNamespace(stderr="7.err", folder=Path("nowhere"))

    def __init__(self, status: int | None, state: str = "COMPLETED", error: Exception | None = None) -> None:
        self.status, self.state, self.error = status, state, error

    def done(self) -> bool:
        return True

    def result(self) -> int:
        from submitit.core.utils import UncompletedJobError  # noqa: PLC0415 (an extra)

        if self.status is None:
            raise self.error or UncompletedJobError("no result\nlong story")
        return self.status

    def cancel(self, check: bool) -> None: ...


def endings(request: Request, *jobs: Fake, asked: bool = False) -> tuple[Event | None, int]:
    """The event that ends a run with these jobs in turn, and how many of them were used."""
    queue = list(jobs)
    run = SlurmJob(request, queue.pop(0), lambda _: queue.pop(0))
    if asked:
        run.ask_to_end()
    for _ in jobs:
        if (event := run.ended()) is not None:
            break
    return event, len(jobs) - len(queue)


def test_jobs_that_end_without_their_runs_fault_are_submitted_again(tmp_path: Path) -> None:
    request, lost, done = request_of(tmp_path), Fake(None, "NODE_FAIL"), Fake(0)
    finished = Event("finished", request.digest)
    assert endings(request, Fake(143), lost, done) == (finished, 3)
    event, used = endings(request, *[lost] * (TRIES + 1))
    assert (event, used) == (Event("failed", request.digest, "Slurm job 7: NODE_FAIL (see 7.err)"), TRIES)


@pytest.mark.parametrize("error", [None, EOFError("ran out of input"), UnpicklingError("truncated")])
@pytest.mark.parametrize("state", ["FAILED", "FINISHED", "COMPLETED", "UNKNOWN"])
def test_a_job_that_was_killed_is_submitted_again(state: str, error: Exception | None, tmp_path: Path) -> None:
    """SIGKILL leaves no result, or half of one; Slurm calls the job failed, submitit's local jobs finished."""
    request = request_of(tmp_path)
    assert endings(request, Fake(None, state, error), Fake(0)) == (Event("finished", request.digest), 2)
    event, used = endings(request, *[Fake(None, state, error)] * (TRIES + 1))
    assert used == TRIES and event is not None and event.kind == "failed"


@pytest.mark.slow
@pytest.mark.processes
def test_submitit_says_of_a_job_that_was_killed_what_is_taken_for_that(tmp_path: Path) -> None:
    import submitit  # noqa: PLC0415 (an extra)

    handle = submitit.LocalExecutor(tmp_path / "slurm").submit(time.sleep, 500)
    deadline = time.monotonic() + 300
    while not (started := _processes(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(min(started), signal.SIGKILL)
    handle.wait()
    status, said = SlurmJob(request_of(tmp_path), handle, lambda _: None).outcome() or (0, "")
    assert status == ENDED_BY_REQUEST
    assert said.startswith(f"Slurm job {handle.job_id}: ")


def test_a_job_that_raised_has_failed(tmp_path: Path) -> None:
    from submitit.core.utils import FailedJobError  # noqa: PLC0415 (an extra)

    request = request_of(tmp_path)
    event, used = endings(request, Fake(None, "FAILED", FailedJobError("a trace")), Fake(0))
    assert used == 1 and event is not None and event.kind == "failed"


def test_jobs_that_were_cancelled_or_ran_out_of_memory_have_failed(tmp_path: Path) -> None:
    request = request_of(tmp_path)
    for state in ("CANCELLED by 1000", "OUT_OF_MEMORY", "TIMEOUT"):
        event, used = endings(request, Fake(None, state), Fake(0))
        assert (event, used) == (
            Event("failed", request.digest, f"Slurm job 7: {state.split()[0]} (see 7.err)"),
            1,
        )
    assert endings(request, Fake(143), Fake(0), asked=True)[1] == 1
    Store(request.store).write_error(request.digest, "ValueError: bad", "")
    assert endings(request, Fake(1))[0] == Event("failed", request.digest, "ValueError: bad")


LOCAL = ("--engine", "slurm", "--slurm", "cluster=local", "--workers", "2")


@pytest.mark.slow
@pytest.mark.processes
def test_a_study_ends_as_in_process(study: Path, trained: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    assert main(["run", str(study), "--store", str(store), "--set", "seeds=1", *LOCAL]) == 0
    found, expected = outcome(store), outcome(trained)
    assert len(found) == 2
    assert found == {digest: expected[digest] for digest in found}
    assert not list((store / "slurm").iterdir())
    for digest in found:
        assert Store(store).log_path(digest).read_text().splitlines()[-1].endswith(" done")


@pytest.mark.slow
@pytest.mark.processes
def test_step_times_for_a_budget_in_seconds_are_measured_in_a_job(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    timed = ("--set", "seeds=1", "--set", "budget={seconds: 0.2}")
    assert main(["run", str(study), "--store", str(store), *timed, *LOCAL]) == 0
    documents = [Store(store).read_calibration(path.stem) for path in store.glob("calibration/*.json")]
    assert [document.workers for document in documents if document] == [2, 2]
    assert not list((store / "slurm").iterdir())
    assert {Store(store).status(digest) for digest in Store(store).runs()} == {"finished"}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("ending", [signal.SIGUSR2, signal.SIGKILL])
def test_a_job_that_is_preempted_or_killed_is_queued_again(study: Path, tmp_path: Path, ending: signal.Signals) -> None:
    """One that Slurm preempts is warned and saves its state; one that is killed goes on from its last checkpoint."""
    longer = ["--set", "budget.tokens=64000", "--set", "seeds=1", "--checkpoint-seconds", "0"]
    alone, ended = tmp_path / "alone", tmp_path / "ended"
    # A process of its own: polars' threads, if an earlier test has used them, do not outlive a fork.
    command = [sys.executable, "-m", "ablate", "run", str(study), "--store", str(ended), *longer, *LOCAL]
    with subprocess.Popen(command) as running:
        _end_jobs(ended, ending)
        assert running.wait() == 0
    assert main(["run", str(study), "--store", str(alone), *longer, "--engine", "inprocess"]) == 0
    logs = [Store(ended).log_path(digest).read_text() for digest in Store(ended).runs()]
    assert sum("resumed after step" in log for log in logs) >= 1
    if ending == signal.SIGUSR2:
        assert all(("its state saved" in log) == ("resumed after step" in log) for log in logs)
    assert outcome(ended) == outcome(alone)


def _end_jobs(store: Path, ending: signal.Signals) -> None:
    """Do to the jobs and their workers what Slurm does, or a killer of processes, once there is a state."""
    deadline = time.monotonic() + 300
    while not list(store.glob("*/state.pt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in sorted(_processes(store)):  # jobs before their workers
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process, ending)


def _processes(store: Path) -> list[int]:
    """The jobs' own processes, and the workers that they started."""
    found: dict[int, tuple[int, list[str]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(folder.name)] = parent, (folder / "cmdline").read_text().split("\0")
    mark = {"submitit.core._submit", str(store / "slurm")}
    jobs = {pid for pid, (_, words) in found.items() if mark <= set(words)}
    return [pid for pid, (parent, _) in found.items() if pid in jobs or parent in jobs]
