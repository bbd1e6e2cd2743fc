"""`ablate plan --minutes`: what is chosen fits, what is wider does not, and the lines to paste give the same plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

import ablate
from ablate.cli import main
from ablate.wings.sizing.sizing import SHARES

STUDY = """
question: Does a gate help?
baseline: swiglu
base: {preset: small, d_model: 32, n_layers: 1, block.mixer.heads: 2}
arms: {gelu: {block.ffn: gelu}}
data: {source: prose, limit: 200000, tokenizer: bytes}
train: {context: 32, batch: 8, lr: 1e-3}
tune: off
seeds: 4
measure: null
evals: null
scales: {cpu: {}}
"""


def seconds(study: Path, **sets: object) -> float:
    return ablate.plan(study, scale="cpu", sets=sets, store=study.parent / "runs", device="cpu").time.total


def test_the_widest_that_fits_is_chosen(tmp_path: Path) -> None:
    study = tmp_path / "gate.yaml"
    study.write_text(STUDY, encoding="utf-8")
    budget = {"tokens_per_parameter": 20}
    ends = (SHARES[0], SHARES[-1])
    fastest, widest = (seconds(study, **{"base.d_model": round(32 * share), "budget": budget}) for share in ends)
    minutes = (fastest * widest) ** 0.5 / 60
    found = ablate.size(study, minutes, scale="cpu", store=tmp_path / "runs", device="cpu")
    assert found.fits and found.seconds <= 60 * minutes
    assert found.seconds == pytest.approx(seconds(study, **found.sets))
    chosen = found.plan.planned[0].spec.d_model
    wider = next(round(32 * share) for share in SHARES if 32 * share > chosen)
    own = {**found.sets, "base.d_model": wider}
    own.pop("train.batch", None)
    assert seconds(study, **own) > 60 * minutes
    assert all(arm.steps >= 500 or arm.train.batch == 1 for arm in found.plan.planned)
    pasted = YAML(typ="safe").load("\n".join(found.lines()))["scales"]["cpu"]
    document = YAML(typ="safe").load(STUDY)
    path = tmp_path / "pasted.yaml"
    YAML(typ="safe").dump({**document, "scales": {"cpu": pasted}}, path)
    again = ablate.plan(path, scale="cpu", store=tmp_path / "runs", device="cpu")
    assert [run.digest for arm in again.planned for run in arm.runs] == [
        run.digest for arm in found.plan.planned for run in arm.runs
    ]


def test_no_time_is_said_to_be_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "gate.yaml"
    study.write_text(STUDY, encoding="utf-8")
    store = ["--store", str(tmp_path / "runs"), "--scale", "cpu"]
    assert main(["plan", str(study), "--minutes", "0.001", *store]) == 0
    assert "the shortest that was tried: use a longer time, or fewer arms" in capsys.readouterr().out
    assert main(["plan", str(study), "--minutes", "-1", *store]) == 2
    assert "--minutes: expected a number above 0, not -1" in capsys.readouterr().err
