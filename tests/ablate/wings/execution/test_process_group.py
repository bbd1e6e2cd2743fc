"""One run by several processes takes the steps of one process, to within rounding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ablate.cli import main
from ablate.data.corpus import Examples
from ablate.machine.numerics import Numerics
from ablate.running.engines import EngineError, load
from ablate.running.engines.local import Pool
from ablate.running.options import Options
from ablate.running.request import Request
from ablate.training.batch import ALONE, MicrobatchError, ProcessGroup
from ablate.training.execution import Execution
from ablate.training.session import Session
from ablate.wings.execution.data_parallel import (
    BUCKET_BYTES,
    DataParallel,
    ProcessGroupError,
    Sharded,
    buckets,
    joined,
)
from ablate.wings.execution.processes import process_group_of
from store import Store
from store.documents import RunDocument
from tests.ablate.conftest import TinyCorpus, identity_of
from tests.many import few
from tests.pretended_cuda.cards import pretend

BALANCED = {"kind": "deepseek_moe", "d_ff": 8, "experts": 8, "top_k": 2, "bias_rate": 0.01}
MIXTURE = {"block.ffn": {"kind": "topk_moe", "d_ff": 8, "experts": 4, "top_k": 2, "balance_loss": 0.1}}


class UnevenCorpus(TinyCorpus):
    """The first row asks for one token and the last for all, so that processes score unlike numbers of targets."""

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Any:
        windows = super().batch(step, batch=batch, context=context, seed=seed)
        asked = np.arange(context) < np.linspace(1, context, batch)[:, None]
        return Examples(windows[:, :-1], np.where(asked, windows[:, 1:], -100))


def session(store: Store, run: RunDocument, numerics: Numerics, group: ProcessGroup, **execution: Any) -> Session:
    settings = Execution(devices=group.size, **execution)
    return Session(store, run, UnevenCorpus(), numerics, settings, group=group)


@contextmanager
def beside(
    store: Store, run: RunDocument, numerics: Numerics, meeting: Path, **execution: Any
) -> Iterator[ProcessGroup]:
    """The first of two processes; the second, a copy of this one, trains beside it."""
    shard = execution.get("shard", False)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with joined(meeting, 1, 2, "cpu", shard=shard) as group:
                for _ in session(store, run, numerics, group, **execution).rehearse():
                    pass
            status = 0
        finally:
            os._exit(status)
    with joined(meeting, 0, 2, "cpu", shard=shard) as group:
        yield group
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "execution", few([{"shard": True, "microbatch": 1}, {"shard": True}, {}, {"microbatch": 1}], 2)
)
@pytest.mark.parametrize("model", [{}, {"block.ffn": BALANCED}], ids=["dense", "experts"])
def test_two_processes_take_the_steps_of_one(
    tmp_path: Path, numerics: Numerics, model: dict[str, Any], execution: dict[str, Any]
) -> None:
    """Eight steps of AdamW, the gradient clipped, and the biases of routers moved by the loads of both."""
    run = identity_of(steps=8, model=model)
    alone, both = Store(tmp_path / "alone"), Store(tmp_path / "both")
    session(alone, run, numerics, ALONE).run()
    with beside(both, run, numerics, tmp_path / "meeting", **execution) as group:
        found = session(both, run, numerics, group, **execution)
        found.run()
        # A dimension of odd size is shared out unevenly.
        assert "shard" not in execution or abs(own_share(found) - 0.5) < 0.1
    assert all(parameter.untyped_storage().nbytes() for parameter in found.model.parameters())
    columns = ["loss", "grad_norm", "validation_loss"]
    one, two = (store.read_metrics(run.digest).select(columns).to_numpy() for store in (alone, both))
    np.testing.assert_allclose(two, one, rtol=2e-5, equal_nan=True)


def test_no_process_keeps_the_whole_weights_while_it_trains(tmp_path: Path, numerics: Numerics) -> None:
    """Rank 0 has them again after each stretch that ends with a validation, and after the last step."""
    run, sizes = identity_of(steps=4, validate_every=0.5), list[int]()
    with beside(Store(tmp_path), run, numerics, tmp_path / "meeting", shard=True) as group:
        found = session(Store(tmp_path), run, numerics, group, shard=True)
        whole = sum(parameter.nbytes for parameter in found.model.parameters())
        learn = found.learner.learn

        def watched(*given: Any) -> Any:
            sizes.append(sum(parameter.untyped_storage().nbytes() for parameter in found.model.parameters()))
            return learn(*given)

        found.learner.learn = watched  # type: ignore[method-assign]
        stretches = found.rehearse()
        for steps in stretches:
            is_validated = steps[-1].step in (2, 4)
            sizes.append(sum(parameter.untyped_storage().nbytes() for parameter in found.model.parameters()))
            assert sizes[-1] == (whole if is_validated else 0)
    assert sizes.count(0) >= 4 and sizes[-1] == whole


def test_a_run_that_ended_before_it_was_scored_is_scored_by_two(
    tmp_path: Path, numerics: Numerics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process saves after the last step, and is killed; two go on, with nothing left to train."""
    monkeypatch.setattr("ablate.training.session.SAVING", 1e9)
    run, store = identity_of(steps=4), Store(tmp_path)
    alone = session(store, run, numerics, ALONE, checkpoint_seconds=0.0).run()
    with beside(store, run, numerics, tmp_path / "meeting", shard=True) as group:
        found = session(store, run, numerics, group, shard=True)
        assert found.place.step == 4
        assert found.run().loss == pytest.approx(alone.loss, rel=1e-6)


def own_share(session: Session) -> float:
    """Share of all trained numbers that this process holds."""
    assert isinstance(session.group, Sharded)
    parts = [parameter.data.to_local().numel() for parameter in session.group.model.parameters()]
    return sum(parts) / sum(parameter.numel() for parameter in session.model.parameters())


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ({"optimizer": "muon"}, "`--shard` does not support the optimizer muon"),
        ({"average": {"kind": "ema"}}, "`--shard` does not support `train.average`"),
        (
            {"model": {"sharing": {"blocks": 1, "injection": True, "random_depth": {}}}},
            "`--shard` does not support sharing.random_depth",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused(request_of_two: Request, train: dict[str, Any], reason: str) -> None:
    sharded = {"identity": identity_of(**train), "execution": Execution(devices=2, shard=True)}
    with (
        pytest.raises(ProcessGroupError, match=reason),
        process_group_of(request_of_two.model_copy(update=sharded)),
    ):
        pass


def test_weights_are_shared_out_among_several_devices(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(study), "--shard"]) == 2
    assert capsys.readouterr().err == ("ablate: --shard: needs `devices` of 2 or more\n")


def test_buckets_hold_all_tensors_once() -> None:
    tensors = [torch.zeros(BUCKET_BYTES // 16) for _ in range(9)]
    found = list(buckets(tensors))
    assert [len(bucket) for bucket in found] == [4, 4, 1]
    assert [id(each) for bucket in found for each in bucket] == [id(each) for each in tensors]


def test_what_cannot_be_shared_is_refused(tmp_path: Path, numerics: Numerics) -> None:
    with pytest.raises(ProcessGroupError, match="a batch of 4 rows cannot be split evenly across 3 devices"):
        DataParallel(0, 3).share(4)
    run = identity_of(model=MIXTURE)
    with pytest.raises(MicrobatchError, match="a batch cannot be split"):
        session(Store(tmp_path), run, numerics, DataParallel(0, 2))


def test_a_worker_has_as_many_gpus_as_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    pretend(monkeypatch, ["A100"] * 5)
    pool = load(Options(devices=2))
    assert isinstance(pool, Pool)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in pool.places] == ["0,1", "2,3"]
    with pytest.raises(EngineError, match="1 workers of 8 devices, but there are 5 GPUs"):
        load(Options(devices=8))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("shard", [[], ["--shard"]])
def test_a_study_on_two_devices_ends_as_on_one_also_when_their_number_changes(
    study: Path, tmp_path: Path, shard: list[str]
) -> None:
    """The command runs the study on one device, on two, and interrupted on two and resumed on one."""
    where = ["run", str(study), "--set", "seeds=1", "--set", "budget.tokens=25600", "--checkpoint-seconds", "0"]
    stores = {name: Store(tmp_path / name) for name in ("one", "two", "changed")}
    assert main([*where, "--store", str(stores["one"].root), "--engine", "inprocess"]) == 0
    assert main([*where, "--store", str(stores["two"].root), "--devices", "2", *shard]) == 0
    _interrupted([*where, "--store", str(stores["changed"].root), "--devices", "2", *shard], stores["changed"])
    assert main([*where, "--store", str(stores["changed"].root), "--engine", "inprocess"]) == 0
    logs = [stores["changed"].log_path(digest).read_text() for digest in stores["changed"].runs()]
    assert any("resumed after step" in log for log in logs)
    for digest in stores["one"].runs():
        one, two, changed = (_weights(store, digest) for store in stores.values())
        for name, weight in one.items():
            torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(changed[name], weight, rtol=1e-3, atol=1e-4)
        results = [store.read_result(digest) for store in stores.values()]
        losses = [result.loss for result in results if result is not None and result.loss is not None]
        assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
        assert [result.devices for result in results if result is not None][:2] == [1, 2]


@pytest.mark.slow
def test_a_process_that_is_killed_is_noticed_in_seconds(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    longer = ["--set", "seeds=1", "--set", "budget.tokens=2560000", "--checkpoint-seconds", "0"]
    command = ["run", str(study), "--store", str(store), "--devices", "2", *longer]
    running = subprocess.Popen([sys.executable, "-m", "ablate", *command], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(store.glob("*/state.pt")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(min(_others(store)), signal.SIGKILL)
    killed = time.monotonic()
    while not (errors := list(store.glob("*/error.txt"))):
        assert time.monotonic() < killed + 20
        time.sleep(0.05)
    assert "ProcessGroupError: process 2 of 2 was ended by SIGKILL (see the run's log)" in errors[0].read_text()
    running.terminate()
    running.communicate()


def _others(store: Path) -> list[int]:
    """Processes of runs in this store beside their workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            words = (folder / "cmdline").read_text().split("\0")
            if "ablate.wings.execution.processes" in words and str(store) in Path(words[-4]).read_text():
                found.append(int(folder.name))
    return found


@pytest.fixture
def request_of_two(tmp_path: Path) -> Request:
    return Request(store=str(tmp_path / "runs"), corpus="none", identity=identity_of(), execution=Execution(devices=2))


def other(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell script in the place of the second process, with the number of its pipe for answers as $0."""
    monkeypatch.setattr("ablate.running.child_process.worker_command", lambda _, pipe, *__: ["sh", "-c", script, pipe])


def test_a_process_that_ends_before_the_team_meets_is_named(
    request_of_two: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    other(monkeypatch, "exit 3")
    with (
        pytest.raises(ProcessGroupError, match=r"process 2 of 2 ended with status 3 \(see the run's log\)"),
        process_group_of(request_of_two),
    ):
        pass


def test_a_process_that_waits_for_a_dead_one_is_ended(request_of_two: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of two waits to meet the second, which has just died, and would do so for half an hour."""
    other(monkeypatch, "echo ready > /dev/fd/$0; exit 4")
    monkeypatch.setattr("ablate.wings.execution.processes.GRACE_SECONDS", 0.2)
    child = os.fork()
    if child == 0:
        with process_group_of(request_of_two):
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    error = Store(request_of_two.store).read_error(request_of_two.digest)
    assert error == "ProcessGroupError: process 2 of 2 ended with status 4 (see the run's log)"


def test_an_error_of_the_first_process_is_not_put_on_the_others(
    request_of_two: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    other(monkeypatch, "echo ready > /dev/fd/$0; exec sleep 60")
    monkeypatch.setattr("ablate.wings.execution.processes.joined", lambda *_, **__: nullcontext(DataParallel(0, 2)))
    with pytest.raises(RuntimeError, match="my own"), process_group_of(request_of_two):
        raise RuntimeError("my own")


def _weights(store: Store, digest: str) -> dict[str, torch.Tensor]:
    return load_file(store.model_dir(digest) / "weights.safetensors")


def _interrupted(command: list[str], store: Store) -> None:
    """Asked to end once there is a state."""
    process = subprocess.Popen([sys.executable, "-m", "ablate", *command], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(store.root.glob("*/state.pt")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == 128 + signal.SIGTERM
