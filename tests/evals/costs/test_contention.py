"""The time in which a thread waited for a processor, against a processor that two have to share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evals.costs import clock
from evals.costs.clock import waiting


@pytest.mark.skipif(not clock.SCHEDSTAT.exists(), reason="this system does not count it")
def test_one_of_two_on_a_processor_waits_half_of_the_time() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # it has our one processor too
    try:
        time.sleep(0.1)
        with waiting() as found:
            end = time.thread_time() + 0.2
            while time.thread_time() < end:
                pass
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, allowed)
    assert found.share is not None
    assert found.share > 0.3  # more where others are at work, too


def test_it_counts_nanoseconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counts = tmp_path / "schedstat"
    monkeypatch.setattr(clock, "SCHEDSTAT", counts)
    counts.write_text("1000 500 7\n")
    with waiting() as found:
        counts.write_text("4000 1500 9\n")
    assert found.share == 1000 / (3000 + 1000)
    counts.write_text("not counted\n")
    with waiting() as unknown:
        pass
    assert unknown.share is None
