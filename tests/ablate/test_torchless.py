"""Commands that begin without torch, and begin again with it where it turns out to be needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.machine import recent
from store import Store
from tests.test_imports import heavy_after
from zoo.settings.without_torch import may_have_gpu

pytestmark = pytest.mark.skipif(may_have_gpu(), reason="there may be a GPU, which only torch sees")
PLAN = "plan norm_placement --scale cpu --store STORE"


def ran(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ablate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def digests(store: Path) -> list[str]:
    return sorted(Store(store).runs())


@pytest.mark.slow
def test_what_was_planned_within_an_hour_is_planned_without_torch(tmp_path: Path) -> None:
    first, again = (heavy_after(PLAN, tmp_path / "runs") for _ in range(2))
    assert first == {"torch", "scipy", "tokenizers"}
    assert again == {"scipy", "tokenizers"}
    assert heavy_after(f"{PLAN} --set train.batch=8", tmp_path / "runs") == first
    shutil.rmtree(recent.path().parent)
    assert heavy_after(PLAN, tmp_path / "runs") == first


def test_a_plan_says_the_same_without_torch(tmp_path: Path) -> None:
    plan = ("plan", "norm_placement", "--store", tmp_path / "runs")
    first, again = (ran(*plan) for _ in range(2))
    assert (again.stdout, again.stderr) == (first.stdout, first.stderr) and "20 runs" in first.stdout


@pytest.mark.slow
def test_a_plan_that_needs_torch_after_all_begins_again(tmp_path: Path) -> None:
    """Its step was not measured, though the plan was made."""
    plan = ("plan", "norm_placement", "--store", tmp_path / "runs")
    first = ran(*plan)
    text = recent.path().read_text(encoding="utf-8")
    recent.path().write_text(text.replace("seconds of a step of", "of another step"), encoding="utf-8")
    again = ran(*plan)
    assert again.stdout.splitlines()[:3] == first.stdout.splitlines()[:3]
    assert again.stdout.count("Matched: ") == 1 and again.stderr == first.stderr
    assert any("seconds of a step of" in name for name in recent.read())


@pytest.mark.processes
def test_a_run_with_nothing_to_do_loads_no_torch_and_one_with_work_does_it(
    study: Path, copy: Path, tmp_path: Path
) -> None:
    """The store has the report, so it begins without torch. The first one measures what products are exact."""
    done = ran("run", study, "--store", copy)
    assert "0 to train" in done.stderr and done.stderr.count("4 in the store already") == 1
    assert heavy_after(f"run {study} --store STORE", copy) == {"polars", "scipy", "tokenizers"}
    before = digests(copy)
    shutil.rmtree(Store(copy).run_dir(before[0]))
    done = ran("run", study, "--store", copy)
    assert "1 to train, 3 in the store already" in done.stderr and digests(copy) == before


def test_reports_and_lists_load_no_figures_of_plotly_and_no_torch(trained: Path) -> None:
    folder = next(path for path in (trained / "studies").iterdir())
    assert heavy_after(f"report {folder}", trained) == {"polars", "scipy"}
    assert heavy_after("list --store STORE", trained) == {"polars", "scipy"}


@pytest.mark.slow
def test_another_engine_begins_with_torch(study: Path, copy: Path) -> None:
    assert "torch" in heavy_after(f"run {study} --store STORE --engine inprocess", copy)
    assert "ABLATE_WITH_TORCH" not in os.environ
