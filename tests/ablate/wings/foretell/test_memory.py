"""Peak memory is foreseen: as much as the allocator hands out in real steps, and as a process holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._profiler import _EventType

import ablate
import zoo
from ablate.machine.numerics import Numerics
from ablate.planning.plan import training_cost
from ablate.training.batch import Accumulation, Batch
from ablate.training.loop import Learner
from ablate.training.optim import build_optimizer
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.memory_needs import Room, most_bytes
from ablate.wings.foretell.step_memory import HEAP, PROCESS_BYTES, StepForecast, foreseen
from tests.ablate.toy import toy_study
from zoo.attend import executed_backends
from zoo.conformance.matrix import AxisOption, axes, combine

CPU = Numerics("cpu", "float32", "highest")
SMALL: dict[str, Any] = {"d_model": 32, "n_layers": 2, "vocab_size": 512, "block.mixer.heads": 2}
SPREAD = {
    "whole batches": ({}, {}, None, False),
    "parts of a batch": ({}, {}, 2, False),
    "experts under muon": ({"block.ffn": "topk_moe"}, {"optimizer": "muon"}, None, False),
    "blocks computed again": ({"block.mixer": "mamba2"}, {}, None, True),
}
"""Edits of the model and of training, rows at a time, and whether blocks are computed again."""


def two_steps(spec: zoo.ModelSpec, train: TrainSpec, rows: int | None, recompute: bool, device: str = "cpu") -> None:
    """The first makes the optimizer's state, so the second needs most."""
    model = zoo.build(spec).to(device).train()
    model.recompute = recompute
    optimizer = build_optimizer(model, zoo.roles(model), train, spec.d_model, spec.n_layers)
    numerics = Numerics(device, train.dtype, "highest")
    learner = Learner(model.loss, optimizer, train, numerics, 0, Accumulation(rows, spec.couples_rows))
    tokens = torch.randint(spec.vocab_size, (train.batch, train.context + 1))
    batch = Batch.next_token(tokens).to(device)
    for step in (1, 2):
        learner.learn(step, 1e-3, batch)
    model.eval()
    with torch.no_grad():  # validation takes whole batches, whatever training takes
        learner.loss(batch.tokens, batch.targets, **batch.given)


def allocated(work: Any) -> int:
    """The most bytes that torch's allocator had given out at a time, by its profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    waiting, found = list(profile.profiler.kineto_results.experimental_event_tree()), []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    alive = peak = 0
    for _, size in sorted(found, key=lambda pair: pair[0]):
        alive += size
        peak = max(peak, alive)
    return peak


@pytest.mark.parametrize(("edits", "training", "rows", "recompute"), SPREAD.values(), ids=SPREAD)
def test_the_peak_is_the_allocators(edits: Any, training: Any, rows: int | None, recompute: bool) -> None:
    spec = zoo.load("small", **{**SMALL, **edits})
    train = TrainSpec(context=64, batch=8, **training)
    peak, attention = foreseen(spec, train, CPU, rows=rows, recompute=recompute)
    assert peak is not None
    with executed_backends(training=True) as executed:
        measured = allocated(lambda: two_steps(spec, train, rows, recompute))
    assert attention == (", ".join(sorted(executed)) or None)
    assert (peak - PROCESS_BYTES) / HEAP == pytest.approx(measured, rel=0.03)


def test_shapes_that_depend_on_data_are_not_foreseen() -> None:
    spec = zoo.load("small", **SMALL, **{"block.ffn": {"kind": "topk_moe", "capacity_factor": 1.0}})
    assert foreseen(spec, TrainSpec(context=16, batch=2), CPU) == StepForecast(None, None)


LENGTH, ROWS = 16, 512
"""Of a batch whose activations are most of what a small model needs, and whose texts every choice can read."""
OPTIONS = [option for of in axes().values() for option in of]
NEAREST = ("mamba3", "rwkv7", "mamba")
"""Mixers that keep most beside their products, in states that their scans write for each token."""


@pytest.mark.parametrize(
    "option",
    [pytest.param(each, marks=() if each.name in NEAREST else pytest.mark.slow) for each in OPTIONS],
    ids=str,
)
def test_what_surely_fits_needs_less_than_the_arithmetic_says(option: AxisOption) -> None:
    spec = combine([option])
    train = TrainSpec.model_validate(
        {"context": LENGTH, "batch": ROWS, **({"objective": "masked"} if spec.visible == "all" else {})}
    )
    if spec.encoder is not None:
        pytest.skip("it is trained on other examples")
    peak, _ = foreseen(spec, train, CPU)
    if peak is None:
        pytest.skip("its shapes depend on the data")
    assert peak < most_bytes(training_cost(train, spec, [LENGTH]), train.batch * train.context)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    study = toy_study(tmp_path, "{wide: {d_model: 48}}")
    sets = {"train.batch": 32, "budget.tokens": 1e4}
    where: dict[str, Any] = {"store": tmp_path / "runs", "workers": 2, "progress": False, "device": "cpu"}

    def plan(room: Room | None = None, **settings: Any) -> ablate.StudyPlan:
        if room is not None:
            monkeypatch.setattr("ablate.wings.foretell.memory_needs.Room.of", lambda _: room)
        return ablate.plan(study, sets=sets, **where, **settings)

    return plan


def test_the_plan_fits_arms_into_memory(planned: Any) -> None:
    """Two runs at once; the wide arm needs more than half of the memory unless its batch is cut."""
    base, wide = planned().document()["arms"]
    room = Room(base["peak_memory_bytes"] + wide["peak_memory_bytes"], runs=2)

    lines = [line for line in planned(room).notes() if line.startswith("arm ")]
    assert [line.split(":")[0] for line in lines] == ["arm wide does not fit"]
    assert "shared by 2 runs at once; with --microbatch auto it needs about" in lines[0]
    small = Room(2 * base["peak_memory_bytes"] - 2, runs=2)
    (line,) = (line for line in planned(small).notes() if line.startswith("arm"))
    assert line.startswith("arms base and wide do not fit: wide needs about ")

    cut = planned(room, microbatch="auto")
    base, wide = cut.document()["arms"]
    assert base["microbatch"] is None
    assert wide["microbatch"] in (1, 2, 4, 8, 16)
    assert wide["peak_memory_bytes"] <= room.each
    assert not [line for line in cut.notes() if line.startswith("arm ")]
    whole = 2 * wide["microbatch"]
    assert planned(room, microbatch=whole).document()["arms"][1]["peak_memory_bytes"] > room.each


def test_the_plan_says_whose_batches_cannot_be_cut(tmp_path: Path) -> None:
    study = toy_study(tmp_path, "{experts: {block.ffn: {kind: topk_moe, balance_loss: 0.1}}}")
    plan = ablate.plan(study, store=tmp_path / "runs", microbatch=2, progress=False, device="cpu")
    assert (
        "arm experts: `--microbatch 2`: a batch cannot be split: balance_loss is over the whole batch" in plan.notes()
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_peak_is_within_a_tenth_of_what_a_process_holds(tmp_path: Path) -> None:
    """At shapes other than those that HEAP was measured on."""
    arms = "{deep: {n_layers: 3}, softcap: {block.mixer.softcap: 30}, output: {block.norm_placement: output}}"
    study = toy_study(tmp_path, arms, steps=4)
    edits = ["base.d_model=192", "base.n_layers=2", "base.vocab_size=2048", "train.batch=24", "train.context=192"]
    sets = [part for edit in [*edits, "budget.tokens=18432", "seeds=1"] for part in ("--set", edit)]
    command = [sys.executable, "-m", "ablate", "{}", str(study), *sets, "--store", str(tmp_path / "runs"), "--json"]

    def document(name: str) -> Any:
        filled = [part.format(name) for part in command]
        return json.loads(subprocess.run(filled, check=True, capture_output=True, text=True).stdout)

    planned = {arm["name"]: arm["peak_memory_bytes"] for arm in document("plan")["arms"]}
    measured = {arm["name"]: arm["peak_memory_bytes"] for arm in document("run")["arms"]}
    assert planned == pytest.approx(measured, rel=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("recompute", [False, True])
def test_the_peak_is_within_a_tenth_of_what_cuda_allocates(recompute: bool) -> None:
    spec = zoo.load("small", d_model=512, n_layers=6, vocab_size=8192)
    train = TrainSpec(context=512, batch=16, dtype="bfloat16")
    peak, _ = foreseen(spec, train, Numerics("cuda", "bfloat16", "high"), recompute=recompute)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    two_steps(spec, train, None, recompute, "cuda")
    assert torch.cuda.max_memory_allocated() - before == pytest.approx(peak, rel=0.1)
