"""Runs of a ladder of lengths end with the same bits, whether they share their stable phase or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ablate
from ablate.running.request import Request
from ablate.running.worker import carry_out
from ablate.training.execution import Execution
from ablate.training.optim import learning_rate
from ablate.training.reader import validation_is_due
from ablate.training.spec import TrainSpec
from ablate.training.stop import Interrupted, StopSignal
from ablate.wings.branches.sharing import copies, families, shared_steps, with_kin
from store import Store
from store.documents import RunDocument
from tests.ablate.conftest import identity_of, metrics_without_clock
from tests.ablate.toy import toy_study

LADDER = """
ladder: {eighth: 0.125, quarter: 0.25, half: 0.5, full: {}}
seeds: [0]
"""
PROBED = "seeds: [0]\nprobes: {which: [gradient_norm], every: 0.25}\n"
LATE = "{late: {train.decay: 0.1}}"
DOUBLE = "{double: {block.norm_placement: double}}"
WSD = "schedule: wsd, warmup: 3 steps"
STEPS = 80


def toy(folder: Path, arms: str = LATE, more: str = LADDER, train: str = WSD) -> Path:
    """A study whose rungs take 10, 20, 40 and 80 steps, of which wsd decays in 2, 4, 8 and 16; `late` in half of it."""
    folder.mkdir(exist_ok=True)
    path = toy_study(folder, arms, steps=STEPS)
    text = path.read_text().replace("validate_every: 1}", f"validate_every: 0.2, {train}}}")
    path.write_text(text + more)
    return path


def trained(study: Path, store: Path) -> Store:
    ablate.run(study, store=store, engine="inprocess", scale="cpu")
    return Store(store)


def request(runs: Store, run: RunDocument, store: Store, stop_at: int | None = None, kin: bool = True) -> None:
    """Carry out one run on the corpus of `runs`, with those of its family or alone, up to a step."""
    corpus = str(runs.data(run.data.digest).path)
    execution = Execution(checkpoint_seconds=60.0 if stop_at is None else 0.0)  # 0 for a look after every step
    asked = Request(store=str(store.root), corpus=corpus, identity=run, execution=execution)
    if kin:
        (asked,) = with_kin([asked], by_length(runs))

    def look() -> None:
        last = store.last_step(run.digest)
        if stop_at is not None and last is not None and last.step >= stop_at:
            stop.asked = True

    stop = StopSignal(look)
    carry_out(asked, stop)


def by_length(runs: Store) -> list[RunDocument]:
    found = [run for digest in runs.runs() if (run := runs.read_run(digest)) is not None]
    return sorted(found, key=lambda run: (run.steps, run.digest))


def outcome(store: Store, digest: str) -> dict[str, Any]:
    """All of a run that no clock decides."""
    result = store.read_result(digest)
    assert result is not None
    named = ("loss", "judging_loss", "train_loss", "start_loss", "steps", "tokens", "grad_norm", "loss_spikes")
    files = (store.model_dir(digest) / "weights.safetensors", store.losses_path(digest))
    return {
        **{name: getattr(result, name) for name in named},
        "files": [path.read_bytes() for path in files],
        "metrics": metrics_without_clock(store.metrics_path(digest)),
        "probes": metrics_without_clock(store.probes_path(digest)) if store.has_probes(digest) else None,
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("shared")
    return trained(toy(folder / "study"), folder / "runs")


@pytest.fixture(scope="module")
def alone(shared: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("alone"))
    for run in by_length(shared):
        request(shared, run, store, kin=False)
    return store


def test_a_ladder_of_lengths_ends_with_the_same_bits(shared: Store, alone: Store) -> None:
    for run in by_length(shared):
        assert outcome(shared, run.digest) == outcome(alone, run.digest)
        assert (own := alone.read_result(run.digest)) is not None and own.shared is None


def test_every_run_takes_only_the_steps_after_those_of_the_one_that_decays_next_before_it(shared: Store) -> None:
    """A stable phase ends with the first step of the decay, which has the peak rate: after 9, 17, 33 and 65 steps, and
    10, 19, 37 and 73 with the late decay."""
    found = {}
    for run in by_length(shared):
        result = shared.read_result(run.digest)
        assert result is not None
        found[run.steps, run.train["decay"]] = before = result.shared.steps if result.shared else 0
        if result.shared:
            own, other = (metrics_by_step(shared, digest) for digest in (run.digest, result.shared.run))
            assert all(own[step] == other[step] for step in range(1, before + 1)), "with their seconds"
            assert result.train_seconds > own[before]["seconds"] > 0
            assert f"begins after step {before} of run" in shared.log_path(run.digest).read_text()
    base, late = ({steps: before for (steps, decay), before in found.items() if decay == own} for own in (0.2, 0.1))
    assert base == {10: 0, 20: 10, 40: 19, 80: 37}
    assert late == {10: 9, 20: 17, 40: 33, 80: 65}
    assert not list(shared.root.glob("*/*.pt"))


def test_arms_that_differ_in_their_decay_share_probes_too(tmp_path: Path) -> None:
    study = toy(tmp_path / "study", more=PROBED)
    store, other = trained(study, tmp_path / "shared"), Store(tmp_path / "alone")
    (late,) = (run for run in by_length(store) if run.train["decay"] == 0.1)
    result = store.read_result(late.digest)
    assert result is not None and result.shared is not None and result.shared.steps == 65
    request(store, late, other, kin=False)
    assert outcome(store, late.digest) == outcome(other, late.digest)
    assert {line["step"] for line in outcome(store, late.digest)["probes"]} == {1, 20, 40, 60, 80}


def metrics_by_step(store: Store, digest: str) -> dict[int, dict[str, Any]]:
    frame = store.read_metrics(digest)
    return {record["step"]: record for record in frame.filter(frame["lr"].is_not_null()).to_dicts()}


def test_runs_stopped_before_and_after_they_part_end_with_the_same_bits(
    shared: Store, alone: Store, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    family = max(families(by_length(shared)), key=len)
    short, long = (run for run in family if run.steps in (20, 40) and run.train["decay"] == 0.2)
    with pytest.raises(Interrupted):
        request(shared, short, store, stop_at=10)
    assert not store.shared_path(short.digest).exists()
    with pytest.raises(Interrupted):
        request(shared, short, store, stop_at=18)
    assert store.shared_path(short.digest).exists()
    with pytest.raises(Interrupted):  # while the shorter one has not ended
        request(shared, long, store, stop_at=25)
    for run in (long, short):
        request(shared, run, store)
        assert outcome(store, run.digest) == outcome(alone, run.digest)
    result = store.read_result(long.digest)
    assert result is not None and result.shared is not None and result.shared.run == short.digest
    assert store.shared_path(long.digest).exists(), "longer ones have not begun"


def test_a_damaged_state_is_named_and_shared_with_nobody(shared: Store, alone: Store, tmp_path: Path) -> None:
    store = Store(tmp_path)
    family = max(families(by_length(shared)), key=len)
    short, long = (run for run in family if (run.steps, run.train["decay"]) in ((10, 0.1), (20, 0.2)))
    request(shared, short, store)
    path = store.shared_path(short.digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert any(f"{path} is damaged" in line for line in ablate.check(tmp_path))
    request(shared, long, store)
    assert "is damaged" in store.log_path(long.digest).read_text()
    assert outcome(store, long.digest) == outcome(alone, long.digest)
    assert (result := store.read_result(long.digest)) is not None and result.shared is None
    assert not path.exists(), "nobody else begins from it"


@pytest.mark.slow
def test_a_command_killed_after_a_state_was_left_goes_on_from_it(shared: Store, tmp_path: Path) -> None:
    study, runs = toy(tmp_path / "study"), tmp_path / "runs"
    words = [str(study), "--store", str(runs), "--engine", "inprocess", "--scale", "cpu"]
    process = subprocess.Popen([sys.executable, "-m", "ablate", "run", *words], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(runs.glob("*/shared.pt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(list(runs.glob("*/shared.pt"))) == 1
    store = trained(study, runs)
    assert store.runs() == shared.runs()
    for digest in store.runs():
        assert outcome(store, digest) == outcome(shared, digest)
        after, before = store.read_result(digest), shared.read_result(digest)
        assert after is not None and before is not None and after.shared == before.shared


@pytest.mark.parametrize(
    "train", ["schedule: cosine, warmup: 3 steps", "schedule: wsd", f"{WSD}, average: {{kind: ema}}"]
)
def test_lengths_whose_rates_or_averages_differ_from_the_start_share_nothing(tmp_path: Path, train: str) -> None:
    plan = ablate.plan(toy(tmp_path, DOUBLE, train=train), store=tmp_path / "runs", scale="cpu")
    runs = [run.identity for rung in plan.outcome.rungs for run in rung.plan.runs]
    assert len(runs) == 8
    assert [pair for family in families(runs) for pair in pairwise(family) if shared_steps(*pair)] == []


def test_a_plan_counts_shared_steps_once(tmp_path: Path) -> None:
    found = ablate.plan(toy(tmp_path, DOUBLE), store=tmp_path / "runs", scale="cpu", workers=1)
    arms = [arm for rung in found.outcome.rungs for arm in rung.plan.arms]
    whole = sum(arm.estimated_seconds(found.speed) for arm in arms)
    saved = sum(
        arm.estimated_seconds(found.speed) * (0.4 * arm.steps + 1) / arm.steps for arm in arms if arm.steps > STEPS / 8
    )
    assert found.time.training == pytest.approx(whole - saved)
    decays = 0.2 * (1 + 2 + 4) / 8  # four lengths cost the longest and the decays of the others: 1 + 0.175, not 1.875
    assert 1 - saved / whole == pytest.approx((1 + decays) / 1.875, abs=0.03)


def run_of(steps: int, **train: Any) -> RunDocument:
    return identity_of(steps=steps, **{"schedule": "wsd", "warmup": "3 steps", **train})


@pytest.mark.parametrize("other", [{"lr": 0.02}, {"seed": 1}, {"weight_decay": 0.2}, {"batch": 8}, {"warmup": 0.0}])
def test_runs_that_differ_in_anything_else_are_no_kin(other: dict[str, Any]) -> None:
    short, long = run_of(20), run_of(40)
    assert list(families([long, short])) == [(short, long)]
    assert list(families([short, run_of(40, **other)])) == []


def test_shared_steps_have_the_rates_and_records_of_both() -> None:
    """And the next step would not: against the rates and validations of each, step by step."""
    random = np.random.default_rng(0)
    most = 0
    for _ in range(300):
        share = float(random.choice([0.0, 0.05, 0.2, 0.25, 1.0]))
        lengths, decays = random.integers(5, 60, size=2).tolist(), random.uniform(0.1, 1, size=2).tolist()
        pair = [
            run_of(steps, validate_every=share, decay=decay, final_lr=0.0)
            for steps, decay in zip(lengths, decays, strict=True)
        ]
        for donor, heir in families(pair):
            common = shared_steps(donor, heir)
            most = max(most, common)
            rates = [
                [learning_rate(step, run.steps, TrainSpec.of(run)) for step in range(1, run.steps + 1)]
                for run in (donor, heir)
            ]
            assert rates[0][:common] == rates[1][:common]
            due = [
                {step for step in range(1, common + 2) if validation_is_due(step, run.steps, share)}
                for run in (donor, heir)
            ]
            assert due[1] - {common + 1} <= due[0]
            parts = rates[0][: common + 1] != rates[1][: common + 1]
            assert parts or common + 1 in due[1] - due[0] or rates[0] == rates[1]  # the same run, told in other words
    assert most > 30


def test_shards_share_nothing(shared: Store, tmp_path: Path) -> None:
    short, *_ = max(families(by_length(shared)), key=len)
    asked = Request(store=str(tmp_path), corpus="", identity=short)
    (asked,) = with_kin([asked], by_length(shared))
    store = Store(tmp_path)
    assert copies(store, asked) == {9: store.shared_path(short.digest)}
    sharded = asked.model_copy(update={"execution": Execution(devices=2, shard=True)})
    (sharded,) = with_kin([sharded], by_length(shared))
    assert (sharded.kin, copies(store, sharded)) == ((), {})
