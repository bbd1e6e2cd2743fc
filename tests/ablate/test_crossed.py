"""Every scale for a GPU with every option of execution and of training: the compiled step is one graph, or a plan has a
line that says why the option is refused. On a CPU, at toy widths, with torch's tracer and no code generated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ablate
import zoo
from ablate.machine.numerics import enforce
from ablate.planning.plan_shown import refusal
from ablate.study.reading import load_study
from ablate.study.scales import shipped_scales
from ablate.training.batch import ALONE
from ablate.training.compiling import compiled, one_graph
from ablate.training.execution import Execution
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from ablate.wings.execution.data_parallel import DataParallel
from store import Store
from store.documents import RunDocument, RunProbes, RunTeacher
from tests.ablate.conftest import TinyCorpus, identity_of
from tests.many import few
from zoo.settings.edits import expand, merge

SCALES = [name for name in shipped_scales() if name.startswith("gpu-")]
TOY = {
    "base.d_model": 32,
    "base.block.mixer.heads": 2,
    "train.context": 16,
    "train.batch": 4,
    "data": {"source": "stdlib", "tokenizer": "bytes"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recompute": {"execution": {"recompute": True}},
    "microbatch": {"execution": {"microbatch": 2}},
    "devices": {"execution": {"devices": 2}},
    "shard": {"execution": {"devices": 2, "shard": True}},
    "average": {"train": {"average": {"kind": "ema"}}},
    "probes": {"probes": RunProbes(every=0.5, which=("max_attention_logit", "update_ratio", "log_z"))},
    "distillation": {"teacher": RunTeacher(run="0" * 16, temperature=2.0, weight=0.5)},
    "lora": {"train": {"lora": {"rank": 2, "alpha": 4}}},
    "documents": {"train": {"objective": {"kind": "next_token", "documents": "apart"}}},
    "all that fit": {
        "execution": {"recompute": True, "microbatch": 2},
        "train": {"average": {"kind": "ema"}},
        "probes": RunProbes(every=0.5, which=("attention_entropy",)),
        "teacher": RunTeacher(run="0" * 16, temperature=2.0, weight=0.5),
    },
}
REFUSED = {"shard": "`--shard` does not support `train.compile` (add `--set train.compile=false`)"}
STEPS = 3


@functools.cache
def toy(scale: str) -> tuple[zoo.ModelSpec, TrainSpec]:
    """The model and the training of a study's baseline at this scale, at toy width."""
    study = load_study("norm_placement", scale, TOY)
    model = study.arms[0].model.dump()
    return zoo.parse({**model, "vocab_size": TinyCorpus.vocab_size}), study.arms[0].train


def crossed(scale: str, option: str, layers: int | None) -> tuple[RunDocument, Execution, TrainSpec, zoo.ModelSpec]:
    asked = OPTIONS[option]
    spec, train = toy(scale)
    assert train.compile and train.dtype == "bfloat16", scale
    model = spec.dump() if layers is None else {**spec.dump(), "n_layers": layers}
    run = identity_of(steps=STEPS, model=model, **{**train.model_dump(mode="json"), **asked.get("train", {})})
    run = run.model_copy(update={name: asked[name] for name in ("probes", "teacher") if name in asked})
    return run, Execution(**asked.get("execution", {})), TrainSpec.model_validate(run.train), zoo.parse(run.model)


def test_scales_differ_in_depth_alone_at_toy_width() -> None:
    """So the quick cases below, of two layers, speak for every scale; the slow ones have each at its own depth."""
    written = [shipped_scales()[scale].layer.nested for scale in SCALES]
    sized = expand({**TOY, "base.n_layers": 2, "train.lr": 1e-3})
    models, trains = ([merge(each[key], sized[key]) for each in written] for key in ("base", "train"))
    assert [model for model in models if model != models[0]] == []
    assert [train for train in trains if train != trains[0]] == []


@pytest.mark.parametrize("option", few([*reversed(OPTIONS)], 4))
@pytest.mark.parametrize(
    ("scale", "layers"),
    [(SCALES[0], 2), *(pytest.param(scale, None, marks=pytest.mark.slow) for scale in SCALES)],
)
def test_the_step_is_one_graph_or_the_plan_says_why_not(
    scale: str, layers: int | None, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, execution, train, model = crossed(scale, option, layers)
    reason = refusal(run, train, model, execution)
    assert reason == REFUSED.get(option)
    if reason is None:
        assert graphs_of(run, execution, model, Store(tmp_path), monkeypatch) == 1


def graphs_of(
    run: RunDocument, execution: Execution, model: zoo.ModelSpec, store: Store, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Number of graphs that training compiles."""
    graphs: list[torch.fx.GraphModule] = []

    def as_it_is(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr("ablate.training.session.compiled", partial(compiled, backend=as_it_is))
    monkeypatch.setattr("ablate.wings.starts.training.source_model", lambda *_: zoo.build(model, seed=1))
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False), one_graph():
        numerics = enforce("cpu", "bfloat16")
        group = DataParallel(0, 2) if execution.devices > 1 else ALONE
        session = Session(store, run, TinyCorpus(), numerics, execution, group=group)
        if group is ALONE:
            assert sum(len(steps) for steps in session.rehearse()) == STEPS
        else:  # gradients need the other process
            session.learner.compile(session.reader.batch(1))
    return len(graphs)


def test_a_plan_names_what_is_refused(tmp_path: Path) -> None:
    """For every arm, before anything is trained; the command itself refuses, too."""
    where = {"scale": "gpu-minutes", "sets": {**TOY, "base.n_layers": 1}, "store": tmp_path / "runs", "device": "cpu"}
    options = {"devices": 2, "shard": True, "progress": False}
    found = ablate.plan("norm_placement", **where, **options)
    lines = [f"arm {arm.name}: {REFUSED['shard']}" for arm in found.planned]
    assert found.refusals == lines and set(lines) <= set(found.notes())
    with pytest.raises(ablate.AblateError) as raised:
        ablate.run("norm_placement", **where, **options)
    assert str(raised.value) == "\n".join(lines)
    assert not list((tmp_path / "runs").glob("*/run.json"))
    uneven = ablate.plan("norm_placement", **where, devices=3, progress=False)
    assert uneven.refusals[0] == "arm pre: `--devices 3`: a batch of 4 rows cannot be split evenly across 3 devices"
