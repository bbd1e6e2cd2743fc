"""A ladder's baseline is trained once: its runs travel as an archive, and another study of the same base and ladder
trains its own arms alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import ablate
from store import Store
from tests.ablate.toy import run_toy, toy_study

LADDER = """
ladder:
  small: {base.d_model: 8, budget.tokens: 1280, train.lr: 2e-2}
  large: {}
"""
SEEDS = [0, 1]


def trained(folder: Path, store: Store, arm: str) -> set[str]:
    """Digests in the store after a study of the base and this arm has been trained, tuning included."""
    folder.mkdir()
    path = toy_study(folder, arm, steps=20, tune="{seeds: 1}")
    path.write_text(path.read_text() + LADDER)
    run_toy(path.rename(folder / f"{folder.name}.yaml"), store, SEEDS)
    return set(store.runs())


@pytest.mark.slow
def test_an_arm_alone_is_trained_where_the_baseline_is_known(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    known = trained(tmp_path / "first", here, "{a: {block.norm: layernorm}}")
    archive = ablate.pack("first", out=tmp_path / "first.zip", store=here.root)
    assert set(archive.runs) == known
    ablate.merge(archive.path, store=there.root)
    found = trained(tmp_path / "second", there, "{b: {block.mixer.position: nope}}")
    new = [there.read_run(digest) for digest in found - known]
    assert len(new) >= 4  # two sizes and two seeds
    assert all("nope" in str(run.model) for run in new if run is not None)
    base = [run for digest in known if (run := here.read_run(digest)) and "layernorm" not in str(run.model)]
    assert {run.model["d_model"] for run in base} == {8, 16} and {run.seed for run in base} >= {*SEEDS, 1000}
