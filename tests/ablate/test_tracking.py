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
from ablate.store import Store
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
    module = importlib.import_module("ablate.tracking.tensorboard")
    monkeypatch.setattr(module, "begin", lambda run: Broken())
    result, lines = followed(study, tmp_path / "runs", "tensorboard")
    assert not result.failed and result.trained == 2
    said = [line for line in lines if "tracker" in line]
    assert said == ["tracker tensorboard failed and is left out from here on: ConnectionError: no network"]


def test_a_tracker_that_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    said: list[str] = []
    trackers = tracking.Trackers(Store(tmp_path), ["tensorboard"], said.append)
    trackers.begin("study", "cpu", "arm", run_of("0123456789abcdef"))
    assert len(said) == 1 and said[0].endswith("pip install 'ablate[trackers]'")
    assert said[0].startswith("tracker tensorboard failed and is left out from here on: ModuleNotFoundError")


def test_an_unknown_tracker_is_refused_before_anything_runs(study: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ablate.ArgumentError, match=r"trackers tensorbord: unknown tracker \(did you mean 'tensorboard'\?\)"
    ):
        ablate.run(study, store=tmp_path / "runs", trackers=["tensorbord"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_wandb_keeps_several_runs_offline_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    begin = importlib.import_module("ablate.tracking.wandb").begin
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
