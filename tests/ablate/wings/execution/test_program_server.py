"""Runs of an arm share a compiled program: their workers are forked from a process that has loaded it."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ablate
from ablate.machine import environment
from ablate.running.request import Request
from ablate.training.compiling import compiled
from ablate.training.execution import Execution
from ablate.wings.execution import program_server
from ablate.wings.execution.program_server import MOST, Programs, has_program, program_of
from store import Store
from tests.documents import result_of

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, when it loads inductor


@pytest.fixture
def request_for(tmp_path, identity):
    def build(steps: int = 20, seed: int = 0, execution: Execution | None = None, **train: Any) -> Request:
        run = identity(steps=steps, seed=seed, **{"compile": True, **train})
        store, corpus = str(tmp_path / "runs"), str(tmp_path / "corpus")
        return Request(store=store, corpus=corpus, identity=run, execution=execution or Execution())

    return build


def test_a_program_is_that_of_a_run_with_another_seed_length_rate_or_decay(request_for):
    own = program_of(request_for())
    for same in ({"seed": 3}, {"steps": 5}, {"lr": 0.1}, {"weight_decay": 0.0}, {"schedule": "linear"}):
        assert program_of(request_for(**same)) == own, same
    model = {"block": {"norm_placement": "post"}}
    for other in ({"batch": 2}, {"context": 8}, {"model": model}, {"optimizer": "lion"}, {"dtype": "bfloat16"}):
        assert program_of(request_for(**other)) != own, other
    assert program_of(request_for(execution=Execution(microbatch=2))) != own
    assert program_of(request_for(execution=Execution(checkpoint_seconds=1.0))) == own


def test_only_runs_that_train_compiled_in_one_process_on_a_cpu_share(request_for):
    request = request_for()
    assert has_program(request)
    assert not has_program(request_for(compile=False))
    assert not has_program(request_for(execution=Execution(devices=2)))
    numerics = request.identity.numerics.model_copy(update={"device": "cuda"})
    cuda = request.identity.model_copy(update={"numerics": numerics})
    assert not has_program(request.model_copy(update={"identity": cuda}))
    Store(request.store).write_result(result_of(request.digest))
    assert not has_program(request), "it is trained"


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Processes whose programs are lines in a file of loads, and whose workers end as the request's file says."""
    loads = tmp_path / "loads"

    def load(request: Request) -> None:
        with loads.open("a") as file:
            file.write(f"{request.identity.train['batch']}\n")
        if request.identity.train["batch"] == 13:
            raise RuntimeError("cannot be compiled")

    def work(path: str) -> int:
        status = int(Path(path).read_text())
        if status < 0:
            os.kill(os.getpid(), -status)
        return status

    monkeypatch.setattr(program_server, "load", load)
    reading, writing = os.pipe()
    found = Programs(work, writing)
    found.loads = lambda: [int(line) for line in loads.read_text().split()]
    yield found
    for server in found._servers.values():
        server.end()
    os.close(writing)
    assert os.read(reading, 1) == b"", "no process has kept the pipe of answers"
    os.close(reading)


@pytest.fixture
def path(tmp_path):
    def written(status: int) -> str:
        (tmp_path / "request").write_text(str(status))
        return str(tmp_path / "request")

    return written


def test_a_program_is_loaded_once_and_outlives_its_workers(programs, request_for, path):
    for status in (0, 7, -signal.SIGKILL, 0):
        assert programs.run(request_for(seed=status % 3), path(status)) == status
    assert programs.run(request_for(batch=2), path(0)) == 0
    assert programs.run(request_for(lr=0.5), path(0)) == 0
    assert programs.loads() == [4, 2]


def test_a_program_whose_process_dies_is_a_failed_run_and_is_loaded_again_for_the_next(programs, request_for, path):
    assert programs.run(request_for(), path(0)) == 0
    (server,) = programs._servers.values()
    os.kill(server.pid, signal.SIGKILL)
    assert programs.run(request_for(), path(0)) == -signal.SIGKILL
    assert programs.run(request_for(), path(0)) == 0
    assert programs.loads() == [4, 4]


def test_a_program_that_cannot_be_loaded_leaves_the_failure_to_the_worker(programs, request_for, path, capfd):
    assert programs.run(request_for(batch=13), path(1)) == 1
    assert "RuntimeError: cannot be compiled" in capfd.readouterr().err


def test_programs_beyond_the_most_end_those_not_used_for_longest(programs, request_for, path):
    batches = range(20, 20 + MOST)
    for batch in (*batches, 20, 99):
        assert programs.run(request_for(batch=batch), path(0)) == 0
    assert len(programs._servers) == MOST
    for batch in (20, 21):
        programs.run(request_for(batch=batch), path(0))
    assert programs.loads() == [*batches, 99, 21]


SERVER = """
import os, sys
from functools import partial
from pathlib import Path
from ablate.running import forkserver
from ablate.running.child_process import answers_to
from ablate.training.compiling import compiled

def backend(graph, inputs):
    with Path(os.environ["COMPILED"]).open("a") as file:
        file.write(f"{os.getpid()}\\n")
    return graph.forward

if os.environ["BACKEND"] == "plain":
    import ablate.training.session
    ablate.training.session.compiled = partial(compiled, backend=backend)
forkserver.main(answers_to(sys.argv[1]))
"""


def losses_of(store: Path) -> dict[str, float | None]:
    return {digest: found.loss for digest in Store(store).runs() if (found := Store(store).read_result(digest))}


@pytest.fixture
def compiled_study(study: Path, monkeypatch, tmp_path):
    """Two arms with programs of their own, and one with the baseline's."""
    text = study.read_text().replace("norm_placement: post}", "norm_placement: post}\n  fast: {train.lr: 2e-2}")
    path = study.parent / "compiled.yaml"
    path.write_text(text.replace("lr: 1e-2", "lr: 1e-2, compile: true"))
    command = environment.worker_command

    def with_backend(module: str, *arguments: str) -> list[str]:
        if module != "ablate.running.forkserver":
            return command(module, *arguments)
        return [sys.executable, "-c", SERVER, *arguments]

    monkeypatch.setattr("ablate.running.child_process.worker_command", with_backend)
    monkeypatch.setenv("COMPILED", str(tmp_path / "compiled"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False):
        yield path


@pytest.mark.slow
def test_runs_that_share_programs_have_the_losses_of_runs_that_do_not(compiled_study, monkeypatch, tmp_path):
    monkeypatch.setenv("BACKEND", "plain")
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    ablate.run(compiled_study, store=shared, workers=1, device="cpu", progress=False)
    processes = (tmp_path / "compiled").read_text().split()
    assert len(processes) == len(set(processes)) == 2, "one of six runs compiled for each of two programs"
    plain = partial(compiled, backend=lambda graph, _inputs: graph.forward)
    monkeypatch.setattr("ablate.training.session.compiled", plain)
    ablate.run(compiled_study, store=alone, engine="inprocess", device="cpu", progress=False)
    assert len(losses_of(shared)) == 6
    assert losses_of(shared) == losses_of(alone)
    assert {Store(shared).read_result(digest).attention for digest in losses_of(shared)} == {"fused"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_programs_compiled_in_earnest_are_shared_to_the_same_bits(compiled_study, monkeypatch, tmp_path):
    monkeypatch.setenv("BACKEND", "inductor")
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    ablate.run(compiled_study, store=shared, workers=1, device="cpu", progress=False)
    ablate.run(compiled_study, store=alone, engine="inprocess", device="cpu", progress=False)
    assert len(losses_of(shared)) == 6
    assert losses_of(shared) == losses_of(alone)
