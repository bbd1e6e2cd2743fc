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
    environment |= {"OMP_NUM_THREADS": "1", "PATIENCE": "10"}
    subprocess.run([ROOT / "docs/benchmarks/first_gpu.sh", out], check=True, env=environment, capture_output=True)
    text = out.read_text()
    parts = re.findall(r"^== (.+?):", text, re.MULTILINE)
    assert parts == [
        *("versions", "whole", "default", "kernels", "at-once", "study", "decoding", "quick"),
        *("choices", "steps", "compiled", "attention"),
    ]
    statuses = re.findall(r"^exit status (\d+) after", text, re.MULTILINE)
    assert dict(zip(parts, statuses, strict=True)) == dict.fromkeys(parts, "0"), text
    assert re.search(r"^ +\d+ resumed after step \d+$", text, re.MULTILINE), text
    assert re.findall(r"^(\d) at once: exit status 0,", text, re.MULTILINE) == ["1", "2", "4"]
    assert not re.findall(r"^.*\w+Error: .*$", text, re.MULTILINE)


@pytest.mark.slow
def test_a_part_goes_on_after_an_error_of_the_device(tmp_path: Path) -> None:
    """The part goes on in a new process, without the measurement that failed."""
    script = tmp_path / "first_gpu.py"
    text = (ROOT / "docs/benchmarks/first_gpu.py").read_text()
    broken = 'PARTS["versions"] = lambda _: {"a": lambda: str(os.getpid()), "b": fail, "c": lambda: str(os.getpid())}\n'
    fail = 'def fail():\n    raise RuntimeError("CUDA error: an illegal memory access was encountered")\n\n\n'
    script.write_text(text.replace("if __name__ ==", f"{fail}{broken}if __name__ =="))
    run = [sys.executable, str(script), "versions", "cpu"]
    out = subprocess.run(run, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    names = [line.split(": ")[0] for line in out.stdout.splitlines()]
    assert names == ["a", "b", "c"]
    assert "illegal memory access" in out.stdout
