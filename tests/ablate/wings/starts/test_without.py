"""Without the wing, its keys are unknown, and runs that need it say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_wings import without

LACKING = """
import sys
from types import SimpleNamespace

import ablate
from ablate.training.session import initial_model
from ablate.training.spec import TrainSpec


def said(ask):
    try:
        ask()
    except ablate.AblateError as error:
        print(str(error).replace(sys.argv[1], ""))


for study in ("start.yaml", "teacher.yaml", "lora.yaml", "base.yaml"):
    said(lambda: ablate.load_study(study))
said(lambda: initial_model(None, SimpleNamespace(digest="3f2a", start={"run": "1"})))
said(lambda: TrainSpec.of(SimpleNamespace(digest="3f2a", train={"lora": {"rank": 2}})))
"""
KEYS = {
    "start": "{preset: small}\narms:\n  again: {start.arm: base}\n",
    "teacher": "{preset: small}\narms:\n  taught: {teacher: {arm: base}}\n",
    "lora": "{preset: small}\narms:\n  adapted: {train.lora.rank: 2}\n",
    "base": "{checkpoint: llama}\narms:\n  wide: {d_model: 32}\n",
}


@pytest.mark.slow
def test_its_keys_are_unknown_and_stored_runs_name_what_they_need(tmp_path: Path) -> None:
    place = without(["ablate/wings/starts"], tmp_path)
    for name, study in KEYS.items():
        (place / f"{name}.yaml").write_text(f"question: Is it better?\nbase: {study}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", LACKING, f"{place}/"],
        capture_output=True, text=True, check=True, cwd=place, env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "start.yaml:4:11: arms.again.start.arm: unknown key",
        "teacher.yaml:4:22: arms.taught.teacher.arm: unknown key",
        "lora.yaml:4:13: arms.adapted.train.lora.rank: unknown key (did you mean 'lr'?)",
        "base.yaml:2:8: base.checkpoint: unknown key",
        "run 3f2a starts from another model, which this installation does not support",
        "run 3f2a: train.lora: unknown key (did you mean 'lr'?)",
    ]
