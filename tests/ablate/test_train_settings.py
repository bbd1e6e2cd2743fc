"""Every setting of training, whole runs of it: a setting that only its own room tests may be refused in a session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ablate.machine.numerics import enforce
from ablate.training.objectives import __name__ as OBJECTIVES
from ablate.training.optimizers import __name__ as OPTIMIZERS
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from store import Store
from tests.ablate.conftest import TinyCorpus, identity_of
from zoo.settings.registry import members

SETTINGS: dict[str, Any] = {
    "context": 8,
    "batch": 2,
    "lr": 1e-3,
    "warmup": 0.5,
    "schedule": "wsd",
    "final_lr": 0.0,
    "decay": 0.5,
    "optimizer": {"kind": "adamw", "betas": [0.8, 0.9]},
    "betas": [0.8, 0.9],
    "weight_decay": 0.5,
    "width_transfer": {"base_width": 8},
    "depth_transfer": {"base_layers": 2},
    "grad_clip": None,
    "dtype": "bfloat16",
    "average": {"horizon": 0.5},
    "validate_every": 0.5,
    "compile": False,  # True has tests of its own, and takes long
    "deterministic": True,
    "objective": {"kind": "prefix"},
    "lora": {"rank": 2},
}
MODELS: dict[str, dict[str, Any]] = {
    "masked": {"visible": "all", "vocab_size": 32},
    "prefix": {"visible": "prefix"},
    "span_corruption": {"encoder": {}, "vocab_size": 32},
}
"""What a model needs for a setting, or for an objective."""


def ending(folder: Path, train: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, bool]:
    """The status of a run of four steps, and whether its loss is a number."""
    run = identity_of(steps=4, model={"n_layers": 4, **model}, **train)
    found = Session(Store(folder), run, TinyCorpus(), enforce("cpu", run.numerics.dtype, 1)).run()
    return found.status, found.loss is not None and math.isfinite(found.loss)


def test_every_setting_has_a_value_here() -> None:
    assert list(SETTINGS) == list(TrainSpec.model_fields)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_trains_with_the_setting(name: str, tmp_path: Path) -> None:
    model = MODELS["prefix"] if name == "objective" else MODELS.get(name, {})
    assert ending(tmp_path, {name: SETTINGS[name]}, model) == ("finished", True)


@pytest.mark.parametrize("kind", members(OPTIMIZERS))
def test_a_run_trains_with_the_optimizer(kind: str, tmp_path: Path) -> None:
    assert ending(tmp_path, {"schedule": "constant", "optimizer": kind}, {}) == ("finished", True)


@pytest.mark.parametrize("kind", members(OBJECTIVES))
def test_a_run_trains_with_the_objective(kind: str, tmp_path: Path) -> None:
    assert ending(tmp_path, {"objective": kind}, MODELS.get(kind, {})) == ("finished", True)
