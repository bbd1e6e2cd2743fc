"""The script for the first half hour of a GPU works at toy sizes on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_of_the_script_ends_well(tmp_path: Path) -> None:
    out = tmp_path / "found.txt"
    environment = {**os.environ, "TINY": "1", "DEVICE": "cpu", "PYTHON": sys.executable}
    subprocess.run([ROOT / "docs/benchmarks/first_gpu.sh", out], check=True, env=environment, capture_output=True)
    text = out.read_text()
    titles, statuses = re.findall(r"^== (.+)$", text, re.MULTILINE), re.findall(r"exit status (\d+)", text)
    assert len(titles) == 6
    assert dict(zip(titles, statuses, strict=True)) == dict.fromkeys(titles, "0"), text
    assert "10 of 10 choices ran" in text
