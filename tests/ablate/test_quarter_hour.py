"""The script for a rented quarter of an hour of a GPU, at toy sizes on a CPU: a card that is taken away in the middle
costs the runs in progress and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

import ablate

SCRIPT = Path(__file__).parents[2] / "docs/benchmarks/quarter_hour.sh"
RUNS = 7
"""Three arms of norm_placement and four of swa_nope, with a seed each."""


def environment(store: Path) -> dict[str, str]:
    toy = {"TINY": "1", "DEVICE": "cpu", "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "PATIENCE": "30"}
    return {**os.environ, **toy, "STORE": str(store)}


def runs_in(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        assert file.testzip() is None
        return {Path(name).parent.name for name in file.namelist() if name.endswith("/result.json")}


def family_of(process: int) -> list[int]:
    """The process and all that it has started."""
    with suppress(OSError):  # it has just ended
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return [process, *(each for child in children for each in family_of(int(child)))]
    return [process]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(7200)
def test_a_card_that_is_taken_away_costs_the_runs_in_progress_alone(tmp_path: Path) -> None:
    first, second = (tmp_path / "rented" / f"{name}.txt" for name in ("first", "second"))
    archive = first.with_suffix(".zip")
    with subprocess.Popen([SCRIPT, first], env=environment(tmp_path / "one"), start_new_session=True) as running:
        while not archive.exists():
            assert running.poll() is None, first.read_text()
            time.sleep(0.2)
        for process in family_of(running.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    kept = runs_in(archive)
    assert kept and "exit status 0" in first.read_text()

    subprocess.run([SCRIPT, second], env=environment(tmp_path / "two"), check=True, capture_output=True)
    text = second.read_text()
    assert f"{len(kept)} new runs" in text
    parts = re.findall(r"^== (.+?):", text, re.MULTILINE)
    assert parts == ["versions", "profile", "brought", "norm_placement", "swa_nope", "packed", "speeds"]
    assert re.findall(r"^exit status (\d+) after", text, re.MULTILINE) == ["0"] * len(parts), text
    everything = second.with_suffix(".zip")
    assert kept <= runs_in(everything) and len(runs_in(everything)) == RUNS
    assert everything.stat().st_size < 16e6
    assert not everything.with_suffix(".zip.new").exists()  # it was packed by one process at a time
    assert not ablate.merge(everything, store=tmp_path / "home").refused
