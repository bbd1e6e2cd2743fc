"""The engine ray, on clusters that are processes of this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate.cli import main
from ablate.running.engines import EngineError, load
from ablate.running.options import Options
from store import Store
from tests.ablate.test_kill import ROOT, outcome
from tests.ablate.toy import toy_study

WITHOUT = importlib.util.find_spec("ray") is None
needs_ray = pytest.mark.skipif(WITHOUT, reason="the extra ray is not installed: 240 MB, too much for every CI run")


def test_without_the_package_there_is_a_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r"pip install ray$"):
        load(Options(engine="ray"))


def test_the_next_command_runs_where_the_last_one_did() -> None:
    settings = {"address": "10.0.0.1:6379"}
    assert Options(engine="ray", engine_settings=settings).of_engine == "--engine ray --address 10.0.0.1:6379"
    jobs = Options(engine="slurm", engine_settings={"partition": "gpu a", "time": "4:00:00"}).of_engine
    assert jobs == "--engine slurm --slurm 'partition=gpu a' --slurm time=4:00:00"


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_said_at_once() -> None:
    with pytest.raises(EngineError, match=r"no Ray cluster at 127\.0\.0\.1:1: .*refused"):
        load(Options(engine="ray", engine_settings={"address": "127.0.0.1:1"}))


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one processor each."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (15 otherwise)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster  # noqa: PLC0415 (an extra)

        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        found.add_node(num_cpus=1)
        yield found
        found.shutdown()


LONGER = ("--scale", "cpu", "--set", "seeds=1", "--set", "budget.tokens=64000", "--checkpoint-seconds", "0")


def begun(study: Path, store: Path, cluster: Any, *more: str) -> subprocess.Popen[str]:
    command = ["run", str(study), "--store", str(store), *LONGER, "--engine", "ray", "--address", cluster.address]
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", *command, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_a_study_whose_cluster_loses_a_node_ends_as_in_process(study: Path, tmp_path: Path, cluster: Any) -> None:
    alone, store = tmp_path / "alone", tmp_path / "runs"
    process = begun(study, store, cluster)
    _wait_for(lambda: len(list(store.glob("*/state.pt"))) == 2)  # a run on each node
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert not list(store.glob("*/result.json")), "the loss came too late to test anything"
    _, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    logs = [Store(store).log_path(digest).read_text() for digest in Store(store).runs()]
    assert sorted("resumed after step" in log for log in logs) == [False, True]
    assert main(["run", str(study), "--store", str(alone), *LONGER, "--engine", "inprocess"]) == 0
    assert outcome(store) == outcome(alone)


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_a_study_whose_cluster_loses_its_head_says_so_and_ends_elsewhere(
    study: Path, tmp_path: Path, cluster: Any
) -> None:
    alone, store, address = tmp_path / "alone", tmp_path / "runs", cluster.address
    process = begun(study, store, cluster)
    _wait_for(lambda: len(list(store.glob("*/state.pt"))) == 2)
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    assert not list(store.glob("*/result.json")), "the loss came too late to test anything"
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 1, (said, errors)
    assert "Traceback" not in errors, errors
    lost = f"the Ray cluster at {address} does not answer: run the same command again to resume"
    failed = errors.count(f" seed 0: failed: {lost}")  # a run on the other node may have ended before it noticed
    assert failed in (1, 2), errors
    assert errors.count(f", seed 0: {lost}") == failed, errors  # at the end again, before Ray ends the process
    here = ["run", str(study), "--store", str(store), *LONGER, "--workers", "1"]
    assert main(here) == 0
    logs = [Store(store).log_path(digest).read_text() for digest in Store(store).runs()]
    assert any("resumed after step" in log for log in logs)  # that of the other node may have ended before it noticed
    assert main(["run", str(study), "--store", str(alone), *LONGER, "--engine", "inprocess"]) == 0
    assert outcome(store) == outcome(alone)


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_a_command_that_loses_its_own_node_names_the_cluster_and_goes_there_again(
    study: Path, tmp_path: Path, cluster: Any
) -> None:
    """The raylet through which the command talks to the cluster, whose head goes on."""
    store = tmp_path / "runs"
    process = begun(study, store, cluster)
    _wait_for(lambda: len(list(store.glob("*/state.pt"))) >= 1)
    for node in (cluster.head_node, *cluster.worker_nodes):
        node.kill_raylet()
    assert not list(store.glob("*/result.json")), "the loss came too late to test anything"
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 1, (said, errors)
    assert "Traceback" not in errors, errors
    assert f"the Ray cluster at {cluster.address}" in errors, errors
    assert "run the same command again to resume" in errors
    assert f"--engine ray --address {cluster.address}" in said, said


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_two_studies_at_once_on_one_cluster_share_it_and_their_runs(study: Path, tmp_path: Path, cluster: Any) -> None:
    """The second asks for the first one's runs, and for those of another seed."""
    alone, store = tmp_path / "alone", tmp_path / "runs"
    other = tmp_path / "other.yaml"
    shutil.copytree(study.parent / "texts", tmp_path / "texts")
    other.write_text(study.read_text())
    both = [begun(study, store, cluster), begun(other, store, cluster, "--set", "seeds=2")]
    for process in both:
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
    shared = Store(store)
    assert [shared.log_path(digest).read_text().count("to do on ") for digest in shared.runs()] == [1] * 4
    for path, more in ((study, ()), (other, ("--set", "seeds=2"))):
        assert main(["run", str(path), "--store", str(alone), *LONGER, *more, "--engine", "inprocess"]) == 0
    assert outcome(store) == outcome(alone)


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_a_cluster_that_was_started_without_a_plugin_trains_it(tmp_path: Path, cluster: Any) -> None:
    path = tmp_path / "meannorm.py"
    shutil.copy(ROOT / "examples/plugin_package/ablate_example/meannorm.py", path)
    toy_study(tmp_path, "{mean: {block.norm: meannorm}}", steps=20)
    asked = ["--scale", "cpu", "--set", "seeds=[0]", "--plugin", str(path), "--engine", "ray"]
    command = [
        "run",
        str(tmp_path / "toy.yaml"),
        "--store",
        str(tmp_path / "runs"),
        *asked,
        "--address",
        cluster.address,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ablate", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path / "runs")
    assert [store.status(digest) for digest in store.runs()] == ["finished", "finished"]


@pytest.mark.slow
@pytest.mark.processes
@needs_ray
def test_runs_share_gpus_by_fractions_and_a_missing_cluster_is_said(cluster: Any) -> None:
    """Sharing is tested in a separate process, since a process talks to one cluster."""
    cluster.add_node(num_cpus=4, num_gpus=1)
    script = f"""
from ablate.running.engines import load
from ablate.running.options import Options
engine = load(Options(engine="ray", workers_per_gpu=3, engine_settings={{"address": "{cluster.address}"}}))
assert (engine.device, engine.at_once) == ("cuda", 3), engine.at_once
assert load(Options(engine="ray", device="cpu", engine_settings={{"address": "{cluster.address}"}})).at_once == 6
import ray, time
from ablate.wings.cluster.ray import _task
def share():
    time.sleep(1)
    return ray.get_runtime_context().get_assigned_resources()["GPU"]
tasks = [_task(share, int(1e4 / 3) / 1e4).remote() for _ in range(3)]
assert ray.get(tasks) == [0.3333] * 3
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
