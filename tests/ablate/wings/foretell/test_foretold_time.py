"""The time that `ablate plan` foretells against steps that are taken."""

from pathlib import Path

import pytest
import torch

import ablate
from ablate.machine.numerics import Numerics
from ablate.planning import durations as speed_module
from ablate.planning.durations import speed_for, step_seconds
from ablate.planning.make_plan import make_plan
from ablate.running.options import Options
from ablate.study.reading import load_study
from ablate.training.spec import TrainSpec
from evals.costs.machine import Speed
from store import Store
from store.documents import ResultDocument
from tests.ablate.test_plan import DATA
from zoo.spec import ModelSpec

NUMERICS = Numerics("cpu", "float32", "highest")


def test_the_step_nearest_in_size_says_how_far_arithmetic_is_off() -> None:
    speed = Speed(1e9, 0.5, {1e6: 3.0, 1e9: 2.0})
    assert speed.step_seconds(4e6, 2, 0.4) == pytest.approx(3.0 * (4e6 / 0.4e9 + 1.0))
    assert speed.step_seconds(4e8, 2, 0.4) == pytest.approx(2.0 * (4e8 / 0.4e9 + 1.0))
    assert Speed(1e9, 0.5).step_seconds(4e8, 2, 0.4) == pytest.approx(2.0)


def test_a_step_is_the_quickest_of_four() -> None:
    """By this clock 50 s, and then 2, 9 and 3 s; the caller's random numbers are as they were."""
    times = iter([0.0, 50.0, 0.0, 2.0, 0.0, 9.0, 0.0, 3.0])
    spec, state = ModelSpec(d_model=16, n_layers=1, vocab_size=32), torch.get_rng_state()
    assert step_seconds(spec, TrainSpec(batch=2, context=8), NUMERICS, clock=lambda: next(times)) == 2.0
    assert next(times, None) is None
    assert torch.equal(torch.get_rng_state(), state)


def test_long_and_compiled_steps_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def speed_on(machine: Speed) -> Speed:
        monkeypatch.setattr(speed_module, "machine_speed", lambda _: machine)
        return speed_for([plan], NUMERICS)

    plan = make_plan(load_study("norm_placement", "cpu", ["train.compile=true"]), identify=lambda _: DATA)
    assert speed_on(Speed(1e9)).tried == {}
    plan = make_plan(load_study("norm_placement", "cpu"), identify=lambda _: DATA)
    assert speed_on(Speed(1.0)).tried == {}
    monkeypatch.setattr(speed_module, "step_seconds", lambda *given: 7.0)
    found = speed_on(Speed(1e12, 1e-3))
    base = plan.arms[0]
    assert base.estimated_seconds(found) == pytest.approx(7.0 * base.steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm_placement", "ffn_activation"])
def test_foretold_is_taken(name: str, tmp_path: Path) -> None:
    """Within 1.5 times, one worker, of short runs: of any arm, the one that differs most included."""
    short = ["budget={tokens: 65536}", "seeds=1", "tune=off", "evals=null", "measure=null"]
    planned = ablate.plan(name, scale="cpu", store=tmp_path, sets=short)
    ablate.run(name, scale="cpu", store=tmp_path, sets=short, workers=1)
    foretold = {
        run.digest: arm.estimated_seconds(planned.speed) for arm in planned.outcome.plan.arms for run in arm.runs
    }
    taken = {digest: _result(tmp_path, digest).train_seconds for digest in foretold}
    ratios = {digest: taken[digest] / foretold[digest] for digest in foretold}
    assert all(1 / 1.5 < ratio < 1.5 for ratio in ratios.values()), ratios


def _result(store: Path, digest: str) -> ResultDocument:
    found = Store(store).read_result(digest)
    assert found is not None
    return found


def test_runs_that_share_a_gpu_share_its_arithmetic() -> None:
    assert Options(workers_per_gpu=3).speed_up(3) == 1
    assert Options(workers_per_gpu=2).speed_up(8) == 4
    assert Options(devices=4).speed_up(2) == 8
    assert Options().speed_up(2) == 2
