"""docs/first_study.md walked as written: try it, ask, plan, an inconclusive answer, its next command, an answer."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.guides.guide import ROOT

QUICK = (
    "base.d_model=16",
    "base.n_layers=1",
    "data.tokenizer=bytes",
    "data.validation_tokens=8192",
    "train.context=32",
    "train.batch=8",
    "budget={tokens: 132000}",
    "tune=off",
    "measure=null",
    "evals=null",
)
"""Models that train in seconds, and for long enough to be judged: their losses scatter by 0.01 nats, of which 40 seeds
can settle 0.02 even where two seeds make the noise look twice as large."""


def ablate(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "ablate", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def quick(*sets: str) -> list[str]:
    return [word for each in (*QUICK, *sets) for word in ("--set", each)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_from_a_question_to_an_answer(tmp_path: Path) -> None:
    ablate(tmp_path, "new", "my_study")
    smoke = json.loads(ablate(tmp_path, "run", "my_study.yaml", "--scale", "smoke", "--json"))
    assert smoke["next"][0]["command"].startswith("ablate run my_study.yaml --scale cpu")
    study = tmp_path / "my_study.yaml"
    written = study.read_text(encoding="utf-8")
    study.write_text(re.sub(r"  swiglu: .*", "  twin: {init.stream: 1}", written), encoding="utf-8")
    plan = ablate(tmp_path, "plan", "my_study.yaml", "--scale", "cpu")
    assert ("will probably detect differences of 0.0" in plan and "2 runs at once" in plan) or "at once" in plan

    first = json.loads(ablate(tmp_path, "run", "my_study.yaml", "--scale", "cpu", "--json", *quick("seeds=2")))
    assert first["arms"][1]["verdict"] == "inconclusive"
    (step, *_) = [each for each in first["next"] if "seeds=" in each["command"]]
    assert step["chance"] == 0.8 and step["seconds"] > 0

    _, *words = shlex.split(step["command"])
    answer = json.loads(ablate(tmp_path, *words, "--json"))
    verdicts: dict[str, Any] = {arm["name"]: arm for arm in answer["arms"]}
    twin = verdicts["twin"]
    assert twin["verdict"] in ("inconclusive", "no difference", "better", "worse")
    assert len(twin["seeds"]) > 2 and not set(twin["seeds"]) & {0, 1}
    low, high = twin["difference_interval"]
    assert high - low < first["arms"][1]["difference_interval"][1] - first["arms"][1]["difference_interval"][0]
    ledger = ablate(tmp_path, "ledger", "my_study")
    assert ledger.count("twin") == 2
