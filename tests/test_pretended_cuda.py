"""Models of every name, and training runs of all kinds, take steps on a pretended CUDA device: no error of devices or
types, and no host read.

A fake tensor has a device, a type and a shape but no data, so numbers, speed and memory are not seen here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent / "pretended_cuda"
READS = {
    "ffn: deepseek_moe d_ff=12 experts=5": 6,
    "ffn: topk_moe d_ff=20 experts=5 zero_experts": 6,
    "ffn: deepseek_moe": 3,
    "ffn: hash_moe": 3,
    "ffn: topk_moe": 3,
    "training: ": 4,
}
"""Reads on the host, by the beginning of a name. A step of three layers with experts: the number of rows of each
determines how large its product is, and the number of all of them where some experts have none. A training run: losses
and gradient norms, at each of the two rests."""


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that registers the device."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    if torch.version.cuda is not None:
        pytest.skip("this build of torch has CUDA of its own")
    home, library = Path(torch.__file__).parent, tmp_path_factory.mktemp("guard") / "guard.so"
    flags = ["-shared", "-fPIC", "-std=c++20", f"-I{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib"]
    source = str(FOLDER / "guard.cpp")
    subprocess.run([compiler, source, *flags, "-lc10", "-ltorch_cpu", "-o", str(library)], check=True)
    return library


@pytest.mark.timeout(900)
@pytest.mark.parametrize("one_in", [64, pytest.param(1, marks=pytest.mark.slow)])
def test_a_step_has_no_error_and_no_host_read(one_in: int, guard: Path) -> None:
    command = [sys.executable, str(FOLDER / "sweep.py"), str(guard), str(one_in)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout)
    assert found
    assert {name: outcome["error"] for name, outcome in found.items() if outcome["error"]} == {}
    for name, outcome in found.items():
        allowed = next((times for begin, times in READS.items() if name.startswith(begin)), 0)
        assert sum(outcome["reads"].values()) == allowed, (name, outcome["reads"])
