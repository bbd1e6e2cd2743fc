"""GPUs that are shared, mixed or slowed, without one."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

import ablate
from ablate.cli import main
from ablate.machine.numerics import enforce, unlike_gpus
from ablate.running import phases
from ablate.running.context import open_context
from ablate.running.engines import EngineError, load
from ablate.running.engines.local import Pool
from ablate.running.options import Options
from ablate.running.request import Request
from ablate.wings.foretell import memory_needs
from ablate.wings.foretell.memory_needs import MemoryForecasts, MemoryNeed, Room
from evals.costs.clock import watched
from evals.costs.devices import device, names, published_flops_per_second
from evals.costs.machine import room_bytes
from evals.costs.memory import CONTEXT_BYTES, take_share
from evals.costs.peaks import peak_flops_per_second
from store import Store
from tests.ablate.toy import toy_study
from tests.pretended_cuda.cards import pretend

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def test_runs_come_to_gpus_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,2,7,0")
    pretend(monkeypatch, [H100, A100, H100, H100])
    pool = load(Options())
    assert isinstance(pool, Pool)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in pool.places] == ["4", "7", "0"]
    pair = load(Options(devices=2))
    assert isinstance(pair, Pool)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in pair.places] == ["4,7"]
    with pytest.raises(EngineError, match="4 workers, but there are 3 GPUs of one kind"):
        load(Options(workers=4))


def test_gpus_of_another_kind_are_named_and_have_an_identity_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, [H100, A100])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    open_context(tmp_path, {}, progress=True)
    assert "of one kind, here NVIDIA H100 80GB HBM3. Left out: NVIDIA A100-SXM4-80GB" in capsys.readouterr().err
    first = enforce("cuda", "bfloat16").identity()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    pretend(monkeypatch, [A100])
    assert unlike_gpus() is None
    assert enforce("cuda", "bfloat16").identity() != first


def test_room_is_what_others_leave_of_the_fullest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, [H100] * 3, free=[70, 20, 10])
    assert room_bytes("cuda", [0, 1]) == 20


def test_an_arm_that_exceeds_what_is_free_is_said_not_to_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ablate.plan(
        toy_study(tmp_path, "{wide: {d_model: 48}}"),
        store=tmp_path / "runs",
        device="cpu",
        microbatch=1,
        progress=False,
    )
    monkeypatch.setattr(memory_needs, "needed", lambda *_: MemoryNeed(2**30))
    (line,) = MemoryForecasts(plan, Room(2**30, runs=2, free=True)).remarks()
    assert line.startswith(
        "arms base and wide do not fit: base needs about 1 GiB of 1 GiB free, shared by 2 runs at once"
    )


def test_a_worker_takes_its_share_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of three workers, with the context of each, are the whole."""
    total, taken = 80 * 2**30, []
    pretend(monkeypatch, [H100], total=total)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", taken.append)
    take_share(1)
    assert not taken
    take_share(3)
    assert 3 * (taken[0] * total + CONTEXT_BYTES) == pytest.approx(total)


@pytest.mark.gpu
def test_a_process_on_a_gpu_gets_its_share_and_no_more() -> None:
    free, total = torch.cuda.mem_get_info()
    assert room_bytes("cuda") == free < total
    take_share(8)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 8, dtype=torch.uint8, device="cuda")
        torch.empty(total // 16, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_data_sheets_are_found_by_the_name_that_torch_gives() -> None:
    assert published_flops_per_second(H100, "bfloat16") == 9.895e14
    assert published_flops_per_second(A100, "float32") == 1.56e14  # in TF32
    assert published_flops_per_second("NVIDIA H100 PCIe", "bfloat16") is None  # another rate
    sheets = [device(name) for name in names()]
    assert all(sheet.names for sheet in sheets)
    assert len({name for sheet in sheets for name in sheet.names}) == sum(len(sheet.names) for sheet in sheets)


@pytest.mark.parametrize("name", names())
def test_tf32_has_half_the_rate_of_bfloat16_or_less(name: str) -> None:
    found = device(name)
    assert found.flops_per_second["float32"] <= found.training_flops_per_second("float32")
    assert found.training_flops_per_second("float32") <= 0.511 * found.flops_per_second["bfloat16"]


def test_a_shared_gpu_has_the_utilisation_of_its_data_sheet_alone(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products that are measured beside other runs are no ceiling."""
    real_request, real_environment = Request.of, phases.describe
    monkeypatch.setattr(Request, "of", lambda *given: real_request(*given).model_copy(update={"beside": 1}))
    on_gpu = {"device": H100}
    monkeypatch.setattr(phases, "describe", lambda *given: real_environment(*given).model_copy(update=on_gpu))
    shorter = ["--set", "seeds=1", "--set", "measure=null", "--set", "evals=null"]
    assert main(["run", str(study), "--store", str(tmp_path), "--engine", "inprocess", *shorter]) == 0
    results = [Store(tmp_path).read_result(digest) for digest in Store(tmp_path).runs()]
    assert results
    for result in filter(None, results):
        assert result.mfu is None and result.training_speed is not None
        assert result.published_flops_per_second == 4.945e14  # of TF32
        assert result.mfu_published == pytest.approx(result.flops_per_token * result.training_speed / 4.945e14)


class Driver(ModuleType):
    """A management library with one GPU, by its documented constants: 4 is the power limit, 64 heat in hardware."""

    NVMLError = ValueError

    def __init__(self, *reasons: int) -> None:
        super().__init__("pynvml")
        self.reasons, self.__spec__ = iter(reasons), SimpleSpec

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 (its name)
        assert uuid == "GPU-7-7"
        return "handle"

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802 (its name)
        assert handle == "handle"
        found = next(self.reasons, None)
        if found is None:
            raise self.NVMLError("gone")
        return found


SimpleSpec = sys.__spec__


def test_sensors_are_read_while_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, [H100])
    monkeypatch.setitem(sys.modules, "pynvml", Driver(0, 4, 68, 4))
    monkeypatch.setattr("evals.costs.clock.SAMPLE_SECONDS", 0.005)
    clocks = iter([1980, 1500, 1500, 1410, 99])
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda: next(clocks))
    monkeypatch.setattr(torch.cuda, "power_draw", lambda: 650_000)
    monkeypatch.setattr(torch.cuda, "temperature", lambda: 71)
    with watched("cuda") as sensors:
        deadline = time.monotonic() + 60
        while len(sensors.samples) < 4 and time.monotonic() < deadline:
            time.sleep(0.001)
    state = sensors.state
    assert state is not None and state.samples == 4
    assert (state.clock_mhz.median, state.power_watts.median, state.celsius) == (1500, 650, 71)
    assert state.slowed_by == {"power limit": 0.75, "heat, in hardware": 0.25}


@pytest.mark.gpu
def test_a_gpu_has_a_clock_and_a_power(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.setattr("evals.costs.clock.SAMPLE_SECONDS", 0.1)
    with watched("cuda") as sensors:
        peak_flops_per_second("cuda", torch.bfloat16)
        time.sleep(0.3)
    state = sensors.state
    assert state is not None and state.samples >= 2
    assert 100 < state.clock_mhz.median < 5000 and 10 < state.power_watts.median < 2000 and 10 < state.celsius < 110


def test_without_the_library_or_a_gpu_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.costs.clock.SAMPLE_SECONDS", 0.001)
    for where in ("cpu", "cuda"):
        with watched(where) as sensors:
            time.sleep(0.01)
        assert sensors.state is None
