"""A program that knows AGENTS.md alone improves a toy base, although it is killed, and what it keeps holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ablate
from ablate.wings.campaign.campaign_log import read
from ablate.wings.campaign.proposals import kept, latest
from store import Store
from tests.ablate.toy import toy_study
from tests.guides.guide import ROOT

PROGRAM = """
import re, shlex, subprocess, sys

command = re.search(r"^    (ablate judge .*)$", open("AGENTS.md").read(), re.M)[1].split(" --change")[0]
for idea in sys.argv[1:]:
    words = [sys.executable, "-m", *shlex.split(command), "--change", idea, "--budget", "10m", "--json"]
    status = subprocess.run(words, stdout=subprocess.DEVNULL).returncode
    if status not in (0, 10, 11):
        sys.exit(f"{idea}: {status}")
"""
IDEAS = ("block.norm=layernorm", "train.lr=0.03", "block.mixer.kv_heads=1", "train.lr=0.0001", "block.ffn.d_ff=64")
KILLS = 2
PATIENCE = 300.0


@pytest.mark.slow
def test_a_program_that_is_killed_twice_improves_a_toy_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = toy_study(tmp_path, "{none: {train.warmup: 0.1}}", steps=40)
    _instructions(study)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    for killed in range(KILLS):
        program = _started(tmp_path)
        _wait_for_results(tmp_path, 2 + 5 * killed, program)
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert len(latest(read(Store("runs"), "toy-cpu"))) < len(IDEAS), "it was killed on the way"
    assert _started(tmp_path).wait(600) == 0
    records = latest(read(Store("runs"), "toy-cpu"))
    asked = [record.name for record in records]
    assert all(name in IDEAS for name in asked)
    assert all(record.outcome for record in records), "what was interrupted was decided later"
    changes = {path: value for record in kept(records) for path, value in record.edits.items()}
    assert changes["train.lr"] == 3e-2
    _hold(changes, tmp_path / "fresh")


def _instructions(study: Path) -> None:
    words = ["judge", study.name, "--scale", "cpu", "--init"]
    subprocess.run([sys.executable, "-m", "ablate", *words], check=True, env=_environment())


def _hold(changes: dict[str, object], folder: Path) -> None:
    """What was kept against the first base, on seeds that no proposal had."""
    folder.mkdir()
    study = toy_study(folder, json.dumps({"improved": changes}), steps=40)
    seeds = {"seeds": list(range(500, 508))}
    found = ablate.run(study, scale="cpu", sets=seeds, store=folder / "runs", engine="inprocess", progress=False)
    assert dict(found.contrasts.select("arm", "verdict").iter_rows()) == {"improved": "better"}


def _started(folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "program.py", *IDEAS]
    return subprocess.Popen(words, cwd=folder, env=_environment(), start_new_session=True)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _results(folder: Path) -> int:
    return len(list((folder / "runs").glob("*/result.json")))


def _wait_for_results(folder: Path, count: int, program: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while _results(folder) < count:
        assert program.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.05)
