"""Measurements on a GPU in a process that ends with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import ablate
from ablate.machine import apart as module
from ablate.machine.apart import MeasuringError, apart, near
from ablate.machine.numerics import Numerics
from ablate.machine.recent import FOLDER
from ablate.planning.durations import machine_speed


def process_and_precision(noise: str) -> tuple[int, str]:
    print(noise)
    return os.getpid(), torch.get_float32_matmul_precision()


def fail() -> None:
    raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")


@pytest.mark.slow
def test_the_call_is_made_elsewhere_with_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    before = torch.get_float32_matmul_precision()
    assert near("cpu", process_and_precision, "here") == (os.getpid(), before)
    torch.set_float32_matmul_precision("high")
    try:
        process, precision = near("cuda", process_and_precision, "elsewhere")
    finally:
        torch.set_float32_matmul_precision(before)
    assert process != os.getpid() and precision == "high"
    with pytest.raises(MeasuringError, match=r"^this GPU could not be measured: RuntimeError: CUDA error: all CUDA"):
        apart(fail)


def test_a_plan_for_a_gpu_computes_nothing_on_it_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever it measures is measured by a child."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    called = []

    def pretended(function: object, *_: object) -> float:
        called.append(getattr(function, "__name__", ""))
        return 1e12

    monkeypatch.setattr(module, "apart", pretended)
    machine_speed(Numerics("cuda", "bfloat16", "high", "pretended"))
    assert len(called) == 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "pretended")
    monkeypatch.setattr("ablate.machine.numerics.gpu_name", lambda: "pretended")
    sets = {"data": {"source": "stdlib", "tokenizer": "bytes"}, "base.n_layers": 1, "base.d_model": 32}
    sets |= {"base.block.mixer.heads": 2, "train.batch": 2, "train.context": 32}
    found = ablate.plan("norm_placement", scale="gpu-minutes", sets=sets, store=tmp_path / "runs", progress=False)
    (foretold,) = found.forecasts
    assert foretold.room.bytes == 10**12 and "room_bytes" in called
    assert not torch.cuda.is_initialized()
