"""docs/search.md walked as written: a search, an edited space, a promoted study, and the next scale."""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.wings.search.documents import TrialRecord, search_folder
from store import Store
from tests.guides.guide import ROOT, files_of

GUIDE = "search.md"


def commands() -> list[list[str]]:
    """Words of the guide's ablate commands, in order."""
    text = (ROOT / "docs" / GUIDE).read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ablate ") and "search_small_lm" not in line]


def _interrupted_and_shared(words: list[str]) -> None:
    """The command is killed once a run has ended, and given again in three terminals."""

    def started() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ablate", *words, "--workers", "1"]
        paths = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, env=paths, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    killed = started()
    while not list(Path("runs").glob("*/result.json")):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    done = {path: path.stat().st_mtime_ns for path in Path("runs").glob("*/result.json")}
    shared = [started() for _ in range(3)]
    for each in shared:
        assert each.wait() == 0, each.communicate()[0]
        each.communicate()
    assert {path: path.stat().st_mtime_ns for path in done} == done, "what had ended was trained again"


def cost(trials: Iterable[TrialRecord]) -> float:
    """Cost of trials with five validations, in whole ones."""
    return sum(len(trial.curve) / 5 if trial.state == "pruned" else 1 for trial in trials)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1800)
def test_from_a_space_to_the_next_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, text in files_of(GUIDE).items():
        Path(path).write_text(text, encoding="utf-8")
    plan, first, edited, promote, confirm, report, front, confirm_front, again, larger = commands()

    def said(words: list[str]) -> str:
        engine = [] if words[0] in ("plan", "report") else ["--engine", "inprocess", "--json"]
        assert main([*words, *engine]) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    planned = said(plan)
    assert "Search: trials at the cost of 10 whole ones, and 6 runs" in planned and "Undertrained" not in planned
    _interrupted_and_shared(first)
    assert set(json.loads(said(first))["trials"]) <= {"finished", "pruned"}
    folder = search_folder(Store("runs"), "small", "cpu")
    trials = folder.read().trials  # type: ignore[union-attr]
    assert 9 < cost(trials) <= 10 + 1e-6
    assert trials[0].settings["d_model"] == 16 and trials[0].settings["train.lr"] == 0.01  # the base
    assert trials[1].settings["block.ffn"] == "gelu" and trials[1].settings["train.lr"] == 0.01
    base, best = folder.read().confirmed  # type: ignore[union-attr]
    assert base.arm == "base" and best.arm.startswith("trial_") and len(base.values) == len(best.values) == 3
    trained = set(Store("runs").runs())

    said(edited)
    later = folder.read().trials  # type: ignore[union-attr]
    imported = [trial for trial in later if trial.imported]
    assert len(imported) == len({str(trial.settings) for trial in trials if trial.state == "finished"})
    assert 9 < cost([trial for trial in later if not trial.imported]) <= 10 + 1e-6
    assert {digest for trial in imported for digest in trial.runs} <= trained
    assert all(trial.settings["block.norm_placement"] == "pre" for trial in imported)

    assert json.loads(said(promote))["promoted"].endswith("small_promoted.yaml")
    for scale in ("cpu", "large"):
        arms = json.loads(said(["plan", "small_promoted.yaml", "--scale", scale, "--json"]))["arms"]
        assert len(arms) == 3 and not any(arm["undertrained"] for arm in arms)
    result = json.loads(said(confirm))
    assert {run["seed"] for run in result["runs"]} == {0, 1, 2}
    assert said(report) == f"{folder.report_path}\n"
    page = folder.report_path.read_text(encoding="utf-8")
    assert "with fresh seeds" in page and "winner’s curse" in page

    members = json.loads(said(front))
    assert members["promoted"].endswith("small_promoted.yaml")
    confirmed = json.loads(said(confirm_front))
    assert confirmed["arms"][0]["name"] == "base" and 2 <= len(confirmed["arms"]) <= 3  # the front may have one member
    losses: dict[str, list[float]] = defaultdict(list)
    for run in confirmed["runs"]:
        losses[run["arm"]].append(Store("runs").read_result(run["digest"]).judging_loss)  # type: ignore[union-attr, arg-type]
    for best in json.loads(said(again))["best"]:
        if of_arm := losses.get(f"trial_{best['number']}"):
            assert best["values"][0] == pytest.approx(statistics.fmean(of_arm))
    (answer,) = re.findall(r'class="answer">(.*?)</p>', folder.report_path.read_text(encoding="utf-8"))
    assert "fresh seed" in answer and "on the front" in answer

    at_large = json.loads(said([*larger, "--set", "seeds=1", "--set", "tune=off"]))
    assert len(at_large["arms"]) == 3
