"""Trackers are shown what the store has, and one that fails stops nothing."""

from __future__ import annotations

import importlib
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ablate
from ablate import tracking
from ablate.wings.trackers._following import Trackers
from store import Store
from tests.documents import run_of


def followed(study: Path, store: Path, *trackers: str) -> tuple[Any, list[str]]:
    lines: list[str] = []
    result = ablate.run(
        study, store=store, engine="inprocess", sets={"seeds": 1}, trackers=trackers, progress=lines.append
    )
    return result, lines


def test_tensorboard_has_the_metrics_of_the_store(study: Path, tmp_path: Path) -> None:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    result, _ = followed(study, tmp_path / "runs", "tensorboard")
    store = Store(tmp_path / "runs")
    for arm, digest in result.runs.select("arm", "digest").iter_rows():
        events = accumulator.EventAccumulator(
            str(store.root / "trackers/tensorboard/tiny-cpu" / f"{arm}-seed0")
        ).Reload()
        for name in ("loss", "lr", "validation_loss"):
            metrics = store.read_metrics(digest).drop_nulls(name)
            expected = list(zip(metrics["step"].to_list(), metrics[name].to_list(), strict=True))
            found = [(event.step, event.value) for event in events.Scalars(name)]
            assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected] and found
        stored = store.read_result(digest)
        assert stored is not None
        assert events.Scalars("final/loss")[0].value == pytest.approx(stored.loss, rel=1e-6)


class Broken:
    def log(self, step: int, values: Any) -> None:
        raise ConnectionError("no network")


def test_a_tracker_that_fails_is_left_out_and_said_once(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("ablate.wings.trackers.tensorboard")
    monkeypatch.setattr(module, "begin", lambda run: Broken())
    result, lines = followed(study, tmp_path / "runs", "tensorboard")
    assert not result.failed and result.trained == 2
    said = [line for line in lines if "tracker" in line]
    assert said == ["tracker tensorboard failed and is no longer used: ConnectionError: no network"]


def test_a_tracker_that_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    said: list[str] = []
    trackers = Trackers(Store(tmp_path), ["tensorboard"], said.append)
    trackers.begin("study", "cpu", "arm", run_of("0123456789abcdef"))
    assert len(said) == 1 and said[0].endswith("pip install tensorboard")
    assert said[0].startswith("tracker tensorboard failed and is no longer used: ModuleNotFoundError")


def test_an_unknown_tracker_is_refused_before_anything_runs(study: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ablate.ArgumentError, match=r"tracker tensorbord: there is no such tracker \(did you mean 'tensorboard'\?\)"
    ):
        ablate.run(study, store=tmp_path / "runs", trackers=["tensorbord"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_wandb_keeps_several_runs_offline_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    begin = importlib.import_module("ablate.wings.trackers.wandb").begin
    runs = [
        begin(tracking.TrackedRun("study", "cpu", arm, 0, f"0123456789abcde{arm}", {"steps": 5}, tmp_path))
        for arm in ("a", "b")
    ]
    for step in range(3):
        for number, run in enumerate(runs):
            run.log(step, {"loss": 10.0 * number + step})
    for run in runs:
        run.finish({"loss": 2.0}, "finished")
    for number, arm in enumerate(("a", "b")):
        (path,) = tmp_path.glob(f"wandb/offline-run-*/run-*{arm}.wandb")
        deadline = time.monotonic() + 20  # its service writes a moment after a run was finished
        while len(found := offline_losses(path)) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == [10.0 * number + step for step in range(3)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of MLflow's own libraries
def test_mlflow_keeps_several_runs_and_a_resumed_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    begin = importlib.import_module("ablate.wings.trackers.mlflow").begin
    runs = {arm: tracked(arm, tmp_path) for arm in ("a", "b")}
    sinks = {arm: begin(run) for arm, run in runs.items()}
    for step in range(3):
        for number, sink in enumerate(sinks.values()):
            sink.log(step, {"loss": 10.0 * number + step})
    resumed = begin(runs["a"])  # is shown all that the store has
    for step in range(5):
        resumed.log(step, {"loss": float(step)})
    resumed.finish({"loss": 4.0}, "finished")
    sinks["b"].finish({}, "failed")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = (each for each in client.search_experiments() if each.name == "study")
    found = {each.data.tags["ablate.arm"]: each for each in client.search_runs([experiment.experiment_id])}
    assert {arm: run.info.status for arm, run in found.items()} == {"a": "FINISHED", "b": "FAILED"}
    losses = {
        arm: [point.value for point in client.get_metric_history(run.info.run_id, "loss")] for arm, run in found.items()
    }
    assert losses == {"a": [0.0, 1.0, 2.0, 3.0, 4.0], "b": [10.0, 11.0, 12.0]}
    assert found["a"].data.metrics["final/loss"] == 4.0
    assert found["a"].data.params == {"steps": "5", "model.layers": "2"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of its own libraries
def test_trackio_keeps_several_runs_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    pytest.importorskip("gradio_client", reason="trackio is not installed")
    begin = importlib.import_module("ablate.wings.trackers.trackio").begin
    runs = [begin(tracked(arm, tmp_path)) for arm in ("a", "b")]
    for step in range(3):
        for number, run in enumerate(runs):
            run.log(step, {"loss": 10.0 * number + step})
    for run in runs:
        run.finish({"loss": 2.0}, "finished")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    names = sorted(storage.get_runs("study"))
    rows = [[row["loss"] for row in storage.get_logs("study", name) if "loss" in row] for name in names]
    assert rows == [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]
    assert any(tmp_path.rglob("*.db"))
    assert capsys.readouterr().out == ""


def tracked(arm: str, folder: Path) -> tracking.TrackedRun:
    config = {"steps": 5, "model": {"layers": 2}}
    return tracking.TrackedRun("study", "cpu", arm, 0, f"0123456789abcde{arm}", config, folder)


def offline_losses(path: Path) -> list[float]:
    """From a file of LevelDB's log format: after 7 bytes, records with a checksum, a length and a type before each."""
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data, place, found = path.read_bytes(), 7, list[float]()
    while place + 7 <= len(data):
        length, _ = struct.unpack("<HB", data[place + 4 : place + 7])
        record = records.Record()
        record.ParseFromString(data[place + 7 : place + 7 + length])
        found += [float(item.value_json) for item in record.history.item if "loss" in (item.key, *item.nested_key)]
        place += 7 + length
    return found
