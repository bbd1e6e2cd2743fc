"""Step times: read from the store where they are there, and measured where they are not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from ablate.cli import main
from ablate.data import prepare
from ablate.machine.environment import describe
from ablate.machine.numerics import enforce
from ablate.planning.identity import digest_of
from ablate.planning.plan import Workload
from ablate.running.engines.local import Pool
from ablate.running.rehearsal import CalibrationError, Rehearsal, Timed
from ablate.study.reading import load_study
from ablate.training.spec import TrainSpec
from ablate.wings.sizing.calibration import Calibration
from evals.costs.alternation import Pace
from store import Store
from store.documents import CostPoint, CostProcess, RunNumerics
from tests.reports.factory import changed

QUICK = Pace(seconds=0.0, rounds=3)
NUMERICS = RunNumerics(device="cpu", dtype="float32", matmul="medium")


def workload(d_model: int = 16, **train: Any) -> Workload:
    settings = {"context": 32, "batch": 4, **train}
    return Workload(zoo.load("small", d_model=d_model, n_layers=1), TrainSpec(**settings), NUMERICS)


def no_corpus() -> Path:
    raise AssertionError("nothing should be measured")


def calibration(root: Path, workers: int = 1, corpus: Any = no_corpus, said: list[str] | None = None) -> Calibration:
    say = [].append if said is None else said.append
    return Calibration(Store(root), Pool("cpu", [{}] * workers), corpus, say=say, pace=QUICK)


def timed_of(seconds: Mapping[str, Sequence[float]], waited: Mapping[str, Sequence[float]] | None = None) -> Timed:
    """Seconds per token of each model, one for each process, which has three turns of it."""
    points = [
        CostPoint(
            work="training",
            context=32,
            batch=4,
            seconds={name: (each[place],) * 3 for name, each in seconds.items()},
            waited={name: ((waited or {}).get(name, (0.0,) * 9)[place],) * 3 for name in seconds},
        )
        for place in range(len(next(iter(seconds.values()))))
    ]
    processes = tuple(CostProcess(points=(point,)) for point in points)
    return Timed(processes=processes, environment=describe("cpu", threads=1))


def keep(clock: Calibration, work: Workload, seconds: float) -> str:
    """Store a step time as if it had been measured."""
    digest = digest_of(clock.question(work))
    timed = timed_of({digest: [seconds / work.train.tokens] * 3})
    clock.store.write_calibration(clock.timed(digest, work, timed))
    return digest


def test_stored_times_are_used_and_nothing_is_measured(tmp_path: Path) -> None:
    clock = calibration(tmp_path)
    for work, seconds in ((workload(16), 0.25), (workload(32), 0.5)):
        keep(clock, work, seconds)
    found = clock([workload(32), workload(16), workload(32)])
    assert [each.seconds for each in found] == pytest.approx([0.5, 0.25, 0.5])
    assert found[0] == found[2]


def test_a_document_of_old_has_a_median_and_no_error(tmp_path: Path) -> None:
    clock = calibration(tmp_path)
    path = clock.store.calibration_path(keep(clock, workload(), 0.25))
    with changed(path) as document:
        document["seconds_per_step"]["median"] = 0.3
        for name in ("seconds", "error", "processes"):
            del document[name]
    (found,) = clock([workload()])
    assert (found.seconds, found.error, found.processes) == (0.3, None, None)


def test_what_changes_the_time_of_a_step_names_another_measurement(tmp_path: Path) -> None:
    clock = calibration(tmp_path)
    base = digest_of(clock.question(workload()))
    same = [workload(lr=1e-4), workload(warmup=0.0, schedule="linear"), workload(weight_decay=0.0, validate_every=0.5)]
    assert {digest_of(clock.question(work)) for work in same} == {base}
    others = [workload(32), workload(grad_clip=None), workload(dtype="bfloat16"), workload(compile=True)]
    digests = {digest_of(clock.question(work)) for work in others}
    digests.add(digest_of(calibration(tmp_path, workers=2).question(workload())))
    exact = Workload(workload().spec, workload().train, NUMERICS.model_copy(update={"matmul": "highest"}))
    digests.add(digest_of(clock.question(exact)))
    assert len(digests - {base}) == 6


def measured(clock: Calibration, monkeypatch: pytest.MonkeyPatch, timed: Timed) -> list[Rehearsal]:
    """Rehearsals that the engine is asked for; it answers each with `timed`."""
    asked: list[Rehearsal] = []

    def rehearse(request: Rehearsal, *, alone: bool) -> Timed:
        assert not alone
        asked.append(request)
        return timed

    monkeypatch.setattr(clock.engine, "rehearse", rehearse)
    return asked


def test_an_uncertain_time_is_said_and_a_certain_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = calibration(tmp_path, corpus=Path, said=said)
    times = {16: [0.0010, 0.0011, 0.0010], 32: [0.0010, 0.0011, 0.0020]}
    for d_model, seconds in times.items():
        digest = digest_of(clock.question(workload(d_model)))
        measured(clock, monkeypatch, timed_of({digest: seconds}))
        monkeypatch.setattr(clock.store, "read_calibration", lambda _: None)
        with pytest.raises(CalibrationError, match="removed meanwhile"):
            clock([workload(d_model)])
    error = np.log(times[32]).std(ddof=1) / math.sqrt(3)
    path = clock.store.calibration_path(digest_of(clock.question(workload(32))))
    assert [text for text in said if "Measuring" not in text] == [
        f"The time of a training step is uncertain by {100 * error:.0f} %. If the machine was busy, remove {path}."
    ]


@pytest.mark.slow
def test_the_error_of_a_ratio_is_the_root_of_both_squares(tmp_path: Path) -> None:
    """Against the scatter of the ratio itself, over many calibrations: a process slows all its models alike."""
    draw, clock, work = np.random.default_rng(0), calibration(tmp_path), workload()
    names, ratios, squares = ("a", "b", "c"), [], []
    for _ in range(400):
        common, own = 0.3 * draw.standard_normal(4), 0.02 * draw.standard_normal((3, 4))
        timed = timed_of({name: np.exp(common + each).tolist() for name, each in zip(names, own, strict=True)})
        a, b = (clock.timed(name, work, timed) for name in "ab")
        assert a.error is not None and b.error is not None
        ratios.append(math.log(a.step_seconds / b.step_seconds))
        squares.append(a.error**2 + b.error**2)
    assert np.mean(squares) == pytest.approx(np.var(ratios), rel=0.15)
    assert np.mean(squares) == pytest.approx(2 * 0.02**2 / 4, rel=0.1)


def test_a_model_that_comes_later_is_measured_against_one_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a day on which the machine is half as fast: the ratio of both is what counts, per token."""
    clock = calibration(tmp_path, corpus=lambda: tmp_path)
    known, new = workload(16), workload(32, batch=8)
    first = keep(clock, known, 0.25)
    later = digest_of(clock.question(new))
    timed = timed_of({first: [0.004, 0.004, 0.004], later: [0.012 * math.exp(e) for e in (0.03, -0.03, 0.0)]})
    asked = measured(clock, monkeypatch, timed)
    one, other = clock([known, new])
    assert [arm.name for arm in asked[0].arms] == [first, later]
    assert one.seconds == pytest.approx(0.25)
    assert other.seconds == pytest.approx(0.25 * 3 * 2)
    assert other.error == pytest.approx(0.03 / math.sqrt(3))


def test_crowded_turns_do_not_count_where_others_do(tmp_path: Path) -> None:
    clock, work = calibration(tmp_path), workload()
    point = timed_of({"a": [0.001] * 3}).processes[0].points[0]
    mixed = point.model_copy(update={"seconds": {"a": (0.001, 0.001, 0.009)}, "waited": {"a": (0.0, None, 0.8)}})
    timed = Timed(processes=(CostProcess(points=(mixed,)),) * 3, environment=describe("cpu", threads=1))
    assert clock.timed("a", work, timed).step_seconds == pytest.approx(0.128)


@pytest.fixture(scope="module")
def timed(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny study beside its texts, with a budget in seconds."""
    path = study.with_name("timed.yaml")
    path.write_text(study.read_text().replace("tokens: 2560", "seconds: 0.5"), encoding="utf-8")
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, str]:
    """The JSON document and standard error of a command that succeeds."""
    assert main([*map(str, arguments), "--json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


@pytest.mark.slow
def test_a_real_measurement_is_kept_and_gives_plan_and_run_their_steps(
    timed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.wings.sizing.calibration.PACE", QUICK)
    store = Store(tmp_path / "runs")
    given = (timed, "--store", store.root, "--device", "cpu", "--scale", "cpu")
    plan, err = command(capsys, "plan", *given, "--workers", 2)
    assert "Measuring the time of a training step: 2 models, 2 workers at once." in err
    documents = [json.loads(path.read_text()) for path in sorted(store.root.glob("calibration/*.json"))]
    assert len(documents) == 2
    for document in documents:
        times = document["seconds_per_step"]
        assert 0 < times["q25"] <= times["median"] <= times["q75"] < 5
        assert document["steps"] >= 4 * 3, "as many processes as workers, twice"
        assert (document["processes"], document["workers"]) == (4, 2)
        assert document["error"] > 0
        assert document["environment"]["threads"] == 1
    times = sorted(document["seconds"] for document in documents)
    assert sorted(arm["seconds"] / arm["steps"] for arm in plan["arms"]) == pytest.approx(times)
    assert [arm["steps"] for arm in plan["arms"]] == [round(0.5 / (a["seconds"] / a["steps"])) for a in plan["arms"]]
    again, err = command(capsys, "plan", *given, "--workers", 2, "--set", "seeds=3")
    assert err == ""
    assert [run["digest"] for run in again["runs"][:4]] == [run["digest"] for run in plan["runs"]]


def test_runs_are_those_that_were_planned_and_are_reused(
    timed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "runs"
    given = (timed, "--store", root, "--device", "cpu", "--scale", "cpu", "--set", "seeds=1")
    study = load_study(timed, "cpu", ["seeds=1"])
    corpus = prepare(study.data, Store(root).data_dir, study.folder)
    clock = calibration(root)
    for arm, seconds in zip(study.arms, (0.05, 0.025), strict=True):
        keep(clock, Workload(arm.model.edit({"vocab_size": corpus.vocab_size}), arm.train, _numerics()), seconds)
    plan, _ = command(capsys, "plan", *given, "--workers", 1)
    assert [arm["steps"] for arm in plan["arms"]] == [10, 20]
    first, _ = command(capsys, "run", *given, "--engine", "inprocess")
    second, _ = command(capsys, "run", *given, "--engine", "inprocess")
    digests = [[run["digest"] for run in document["runs"]] for document in (plan, first, second)]
    assert digests[0] == digests[1] == digests[2]
    assert [(document["trained"], document["reused"]) for document in (first, second)] == [(2, 0), (0, 2)]
    results = [Store(root).read_result(digest) for digest in digests[0]]
    assert [result and result.steps for result in results] == [10, 20]


def _numerics() -> RunNumerics:
    return enforce("cpu", "float32").identity()


@pytest.mark.slow
def test_a_measurement_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.running.rehearsal.FEWEST", 1)
    said: list[str] = []
    clock = calibration(tmp_path, corpus=lambda: tmp_path / "nothing", said=said)
    with pytest.raises(CalibrationError, match=r"could not be measured: .*has no prepared corpus"):
        clock([workload()])
    assert said == ["Measuring the time of a training step: 1 model, 1 worker at once."]
    assert not list(tmp_path.glob("calibration/*"))
