"""A study's speeds: measured once, when nothing else of it runs, and of identical arms the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import ablate
import reports
from ablate.cli import main
from store import Store
from store.documents import CostsDocument
from tests.reports.factory import costs_of

STUDY = """
question: How fast is it?
baseline: pre
base: {preset: small, d_model: 16, n_layers: 2}
arms:
  post: {block.norm_placement: post}
  slow_rate: {train.lr: 3e-3}
  wide: {d_model: 128}
seeds: 2
data: {source: files, paths: ["texts/*.txt"], tokenizer: bytes, validation_tokens: 256, validation_fraction: 0.15}
train: {context: 32, batch: 4, lr: 1e-2}
budget: {tokens: 1280}
measure: {contexts: [16, 32], batches: [1], seconds: 0.02}
evals: null
tune: off
scales: {smoke: {}}
"""


@pytest.fixture
def path(study: Path) -> Path:
    found = study.with_name("costs.yaml")
    found.write_text(STUDY, encoding="utf-8")
    return found


def costs(store: Path, scale: str = "cpu") -> list[CostsDocument]:
    folder = Store(store).study("costs", scale)
    names = [each.stem.removeprefix("costs-") for each in folder.path.glob("costs-*.json")]
    return [found for name in names if (found := folder.read_costs(name)) is not None]


@pytest.mark.slow
def test_a_study_measures_its_speeds_once(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(tmp_path / "runs"), "--device", "cpu", "--scale", "cpu"]
    given = ["run", str(path), *where, "--engine", "inprocess", "--set", "seeds=1"]
    said = "Measuring the arms' speeds against each other"
    assert main(given) == 0
    assert f"{said}: 5 processes, about" in (shown := capsys.readouterr().err) and "measuring speeds 50%" in shown
    (found,) = costs(tmp_path / "runs")
    study = Store(tmp_path / "runs").study("costs", "cpu").read()
    assert study is not None and study.costs == found.request
    assert len(found.processes) == 2
    for process in found.processes:
        assert len(process.points) == 2 * 2 + 1
        for point in process.points:
            assert point.seconds["slow_rate"] == point.seconds["pre"], "a learning rate is no other computation"
            assert point.seconds["post"] != point.seconds["pre"]
            assert set(point.seconds) == {"pre", "post", "slow_rate", "wide"}
    assert min(_logs(found, "wide")) > 0.1, "64 times the arithmetic"
    if not found.is_crowded:  # this machine may be busy
        assert main([*given, "--set", "seeds=2"]) == 0
        assert said not in capsys.readouterr().err, "more seeds have the same speed"


def _logs(found: CostsDocument, arm: str) -> list[float]:
    """All turns, crowded ones too."""
    points = [process.judged("training") for process in found.processes]
    return [float(np.log(np.divide(p.seconds[arm], p.seconds["pre"]).mean())) for p in points if p is not None]


@pytest.mark.slow
def test_a_crowded_measurement_is_made_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that cannot be made says so, and is no failure of the study."""
    measured: list[Any] = []
    monkeypatch.setattr("ablate.running.costing.Costing.measure", lambda self, folder: measured.append(folder))
    sets = {"seeds": 1}
    ablate.run(path, store=tmp_path, sets=sets, scale="cpu", engine="inprocess", progress=False)
    assert len(measured) == 1
    study = Store(tmp_path).study("costs", "cpu").read()
    assert study is not None and study.costs is not None
    document = _document(study.costs, waited=0.5)
    measured[0].write_costs(document)
    assert document.is_crowded
    result = ablate.run(path, store=tmp_path, sets=sets, scale="cpu", engine="inprocess", progress=False)
    assert len(measured) == 2
    assert "other programs used the processor for 50 % of the time" in reports.unmeasured(result.summary)
    measured[0].write_costs(_document(study.costs, waited=0.0))
    ablate.run(path, store=tmp_path, sets=sets, scale="cpu", engine="inprocess", progress=False)
    assert len(measured) == 2


def _document(request: str, waited: float) -> CostsDocument:
    speeds = dict.fromkeys(("pre", "post", "slow_rate", "wide"), 1000.0)
    return costs_of(speeds, waited=waited).model_copy(update={"request": request})


def test_smoke_runs_measure_no_speeds(path: Path, tmp_path: Path) -> None:
    ablate.run(path, store=tmp_path, scale="smoke", engine="inprocess", progress=False)
    assert costs(tmp_path, "smoke") == []


IDENTICAL = """
question: Are they the same?
baseline: a
base: {preset: small, d_model: 24, n_layers: 4, block.mixer.heads: 2}
arms: {b: {block.mixer.position.base: 10001}, c: {block.mixer.position.base: 10002},
       d: {block.mixer.position.base: 10003}, e: {block.mixer.position.base: 10004}}
seeds: 1
data: {source: files, paths: ["texts/*.txt"], tokenizer: bytes, validation_tokens: 256, validation_fraction: 0.15}
train: {context: 64, batch: 8, lr: 1e-2}
budget: {tokens: 2048}
measure: {contexts: [64], batches: [1], seconds: 0.1}
evals: null
tune: off
"""


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run this many programs that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


STUDIES = 20


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 2])
def test_identical_arms_are_seldom_called_different(
    others: int, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty studies of five arms that compute the same, each in three processes, alone and beside busy programs: there
    a study has no speeds, or speeds that are seldom wrong."""
    monkeypatch.setattr("ablate.running.rehearsal.PROCESSES", 3)
    path = study.with_name("identical.yaml")
    path.write_text(IDENTICAL, encoding="utf-8")
    given = {"store": tmp_path, "scale": "cpu", "engine": "inprocess", "progress": False}
    wrong = judged = 0
    with busy(others):
        for _ in range(STUDIES):
            result = ablate.run(path, **given)
            costs = [arm.comparison.costs for arm in result.summary.arms if arm.comparison]
            ratios = [ratio for each in costs for ratio in (each.training, each.decoding) if ratio is not None]
            judged += bool(ratios)
            wrong += any(ratio.excludes(1) for ratio in ratios)
            for stored in Store(tmp_path).study("identical", "cpu").path.glob("costs-*.json"):
                stored.unlink()  # so that it is measured again
    print(json.dumps({"busy programs": others, "studies with speeds": judged, "wrong": wrong}))
    assert wrong <= stats.binom.ppf(0.999, STUDIES, 0.05)
