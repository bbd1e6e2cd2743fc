"""Step times: read from the store where they are there, and measured where they are not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import zoo
from ablate.cli import main
from ablate.data import prepare
from ablate.machine.environment import describe
from ablate.machine.numerics import enforce
from ablate.planning.budgets import Workload
from ablate.planning.identity import digest_of
from ablate.running.calibration import Calibration
from ablate.running.engines.local import Pool
from ablate.running.rehearsal import SETTLING_STEPS, Effort, Timed, by_turns
from ablate.running.rehearsing import CalibrationError
from ablate.store import Store
from ablate.store.documents import RunNumerics
from ablate.study.reading import load_study
from ablate.training.loop import TrainingStep
from ablate.training.spec import TrainSpec

QUICK = Effort(turns=2, steps=SETTLING_STEPS + 3, seconds=0)
NUMERICS = RunNumerics(device="cpu", dtype="float32", matmul="medium")


def workload(d_model: int = 16, **train: Any) -> Workload:
    return Workload(zoo.load("small", d_model=d_model, n_layers=1), TrainSpec(context=32, batch=4, **train), NUMERICS)


def no_corpus() -> Path:
    raise AssertionError("nothing should be measured")


def calibration(root: Path, workers: int = 1, corpus: Any = no_corpus, said: list[str] | None = None) -> Calibration:
    say = [].append if said is None else said.append
    return Calibration(Store(root), Pool("cpu", [{}] * workers), corpus, say=say, effort=QUICK)


def keep(clock: Calibration, work: Workload, seconds: float) -> str:
    """Store a step time as if it had been measured."""
    digest = digest_of(clock.question(work))
    clock.store.write_calibration(clock.timed(digest, work, [seconds], describe("cpu", threads=1)))
    return digest


def test_stored_times_are_used_and_nothing_is_measured(tmp_path: Path) -> None:
    clock = calibration(tmp_path)
    for work, seconds in ((workload(16), 0.25), (workload(32), 0.5)):
        keep(clock, work, seconds)
    assert clock([workload(32), workload(16), workload(32)]) == [0.5, 0.25, 0.5]


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


def test_unsteady_times_are_said_and_steady_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = calibration(tmp_path, corpus=Path, said=said)
    times = {16: [0.10, 0.11, 0.12], 32: [0.10, 0.11, 0.20]}
    for d_model, seconds in times.items():
        found = Timed(seconds=[seconds], environment=describe("cpu", threads=1))
        monkeypatch.setattr(clock.engine, "rehearse", lambda *_, found=found: found)
        assert clock([workload(d_model)]) == [0.11]
    path = clock.store.calibration_path(digest_of(clock.question(workload(32))))
    assert [text for text in said if "Measuring" not in text] == [
        f"Half of the steps took 0.105 to 0.155 s. If the machine was busy, remove {path}."
    ]


def steps(times: Sequence[float]) -> Iterator[list[TrainingStep]]:
    """Steps of 10 tokens that take these seconds, each a stretch of its own."""
    for number, seconds in enumerate(times, start=1):
        yield [TrainingStep(number, 10 * number, 0.0, 2.0, 0.1, 1.0, 10 / seconds)]


def test_a_turn_settles_before_it_counts_and_the_first_turn_does_not_count() -> None:
    cold, settling, counted = 9.0, 5.0, 0.25
    turn = [settling] * SETTLING_STEPS + [counted] * 3
    times = by_turns([steps([cold] * 5 + turn * 2), steps([2 * t for t in [cold] * 5 + turn * 2])], 1, QUICK)
    assert times == [[pytest.approx(counted)] * 6, [pytest.approx(2 * counted)] * 6]


def test_turns_alternate_and_last_as_long_as_asked() -> None:
    seen: list[str] = []

    def watched(name: str) -> Iterator[list[TrainingStep]]:
        for step in steps([0.5] * 100):
            seen.append(name)
            yield step

    times = by_turns([watched("a"), watched("b")], 1, Effort(turns=1, steps=1, seconds=2.0))
    assert [name for name, _ in itertools.groupby(seen)] == ["b", "a", "b", "a"]
    assert [len(each) for each in times] == [4 - SETTLING_STEPS] * 2


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


def test_a_real_measurement_is_kept_and_gives_plan_and_run_their_steps(
    timed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.running.calibration.Effort", lambda: QUICK)
    store = Store(tmp_path / "runs")
    given = (timed, "--store", store.root, "--device", "cpu", "--scale", "cpu")
    plan, err = command(capsys, "plan", *given, "--workers", 2)
    assert "Measuring the time of a training step: 2 models, 2 workers at once." in err
    measured = [json.loads(path.read_text()) for path in sorted(store.root.glob("calibration/*.json"))]
    assert len(measured) == 2
    for document in measured:
        times = document["seconds_per_step"]
        assert 0 < times["q25"] <= times["median"] <= times["q75"] < 5
        assert (document["steps"], document["workers"]) == (2 * 2 * 3, 2)
        assert document["environment"]["threads"] == 1
    medians = sorted(document["seconds_per_step"]["median"] for document in measured)
    assert sorted(arm["seconds"] / arm["steps"] for arm in plan["arms"]) == pytest.approx(medians)
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


def test_a_measurement_that_fails_says_why(tmp_path: Path) -> None:
    said: list[str] = []
    clock = calibration(tmp_path, corpus=lambda: tmp_path / "nothing", said=said)
    with pytest.raises(CalibrationError, match=r"could not be measured: .*holds no prepared corpus"):
        clock([workload()])
    assert said == ["Measuring the time of a training step: 1 model, 1 worker at once."]
    assert not list(tmp_path.glob("calibration/*"))
