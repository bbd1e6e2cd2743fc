"""Depth transfer: how much training changes the stream of models of several depths, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import zoo
from ablate.training.batch import Batch
from ablate.training.loop import Learner, train
from ablate.training.optim import build_optimizer, trained
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from ablate.training.transfer import depth_refusals
from store import Store
from tests.ablate.test_transfer import FLOAT32, activations

BASE = 2
DEPTHS = (2, 4, 8, 16)


def model_spec(depth: int, transfer: bool = True, **edits: Any) -> zoo.ModelSpec:
    scale = BASE / depth if transfer else 1.0
    parts = {"block.norm_placement": {"kind": "pre", "branch_scale": scale}, "init.output": "plain"}
    return zoo.load("small", vocab_size=64, d_model=32, n_layers=depth, **{**parts, **edits})


def train_spec(**settings: Any) -> TrainSpec:
    fixed = {"warmup": 0, "schedule": "constant", "weight_decay": 0, "grad_clip": None, "lr": 1e-3}
    return TrainSpec.model_validate({**fixed, "depth_transfer": {"base_layers": BASE}, **settings})


def change(depth: int, spec: TrainSpec, transfer: bool, output: str) -> float:
    """Root mean square of what four steps change in the last stream."""
    model = zoo.build(model_spec(depth, transfer, **{"init.output": output}))
    tokens = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(1))
    before = activations(model, tokens)["stream"]
    optimizer = build_optimizer(model, zoo.roles(model), spec, 32, depth)
    learner = Learner(model.loss, optimizer, spec, FLOAT32)
    assert sum(len(steps) for steps in train(learner, lambda _: Batch.next_token(tokens), 4)) == 4
    return (activations(model, tokens)["stream"] - before).square().mean().sqrt().item()


def slope(spec: TrainSpec, transfer: bool, output: str) -> float:
    """Exponent of the depth in that change."""
    changes = [change(depth, spec, transfer, output) for depth in DEPTHS]
    return float(np.polyfit(np.log(DEPTHS), np.log(changes), 1)[0])


@pytest.mark.parametrize(("output", "most"), [("zero", 0.05), ("plain", 0.25)])
def test_the_stream_changes_alike_at_every_depth(output: str, most: float) -> None:
    """Branches that are as large at every depth change it the more the more there are. Where they start at random, they
    add up as √L, so that with the factor 1/L what they add at the start, and is changed with it, fades as 1/√L."""
    assert slope(train_spec(depth_transfer=None), False, output) > 0.6
    assert -most < slope(train_spec(), True, output) < 0.05


def test_epsilon_shrinks_in_layers_alone() -> None:
    model, spec = zoo.build(model_spec(8)), train_spec()
    optimizer = build_optimizer(model, zoo.roles(model), spec, 32, 8)
    eps = {id(p): group["eps"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert eps[id(parameter)] == pytest.approx(1e-8 * (BASE / 8 if name.startswith("blocks.") else 1)), name
    assert {each.lr_factor for each in trained(model, zoo.roles(model), spec, 32, 8)} == {1.0}


def test_a_run_trains_with_the_depth_of_its_model(tmp_path, identity, corpus, numerics) -> None:
    run = identity(model={"n_layers": 4}, depth_transfer={"base_layers": 2})
    groups = Session(Store(tmp_path), run, corpus, numerics).learner.optimizer.param_groups
    assert {group["eps"] for group in groups} == {1e-8, 0.5e-8}


def test_nothing_changes_at_the_base_depth() -> None:
    model = zoo.build(model_spec(BASE))
    groups = build_optimizer(model, zoo.roles(model), train_spec(), 32, BASE).param_groups
    assert {group["eps"] for group in groups} == {1e-8}
    assert depth_refusals(model.spec, train_spec()) == []


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "branches": ({"block.norm_placement": "pre"}, {}, "set norm_placement.branch_scale to 0.25 (base_layers"),
    "placement": ({"block.norm_placement": "post"}, {}, "needs norm_placement pre with stream_scale 1, not post"),
    "start": ({"init.output": "scaled"}, {}, "set init.output to plain"),
    "optimizer": ({}, {"optimizer": "muon"}, "the optimizer muon: set train.optimizer to adamw"),
    "feature": ({"unet_skips": True}, {}, "does not support unet_skips"),
    "block feature": ({"block.canon": {}}, {}, "does not support canon"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_rule_does_not_cover_is_refused(case: str) -> None:
    edits, settings, reason = REFUSED[case]
    model = model_spec(8, **edits)
    (found,) = depth_refusals(model, train_spec(**settings))
    assert reason in found
    assert depth_refusals(model, train_spec(depth_transfer=None, **settings)) == []
