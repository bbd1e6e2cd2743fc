"""The trial of the kernel for all experts: torch's own definition passes it, and kernels with known faults do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.ffns import _grouped as grouped
from zoo.ffns._grouped import can_group, fault, grouped_product, has_kernel, try_kernel
from zoo.kernels.compiling import hold_constants
from zoo.kernels.trial import WRONG, trial_fault


def test_the_definition_passes() -> None:
    assert try_kernel("cpu")


class Faulty(torch.autograd.Function):
    """Grouped products whose weights of experts without rows get what was in memory, as some kernels leave it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight, offs)
        return F.grouped_mm(rows, weight, offs=offs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, weight, offs = ctx.saved_tensors
        with torch.enable_grad():
            given = [each.detach().requires_grad_() for each in (rows, weight)]
            of_rows, of_weight = torch.autograd.grad(F.grouped_mm(*given, offs=offs), given, gradient)
        empty = torch.diff(offs, prepend=offs.new_zeros(1)) == 0
        of_weight[empty] = float("nan")
        return of_rows, of_weight, None


def unwritten(rows: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return Faulty.apply(rows, weight, offs)


def shifted(rows: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """The last rows of each expert are taken for the next one's."""
    return ORIGINAL(rows, weight, offs=(offs - 1).clamp(min=0).index_fill(0, torch.tensor([len(offs) - 1]), len(rows)))


def refuses(*_: Tensor, offs: Tensor) -> Tensor:
    raise RuntimeError("CUDA error: invalid configuration argument")


ORIGINAL = F.grouped_mm
FAULTS = {
    "unwritten": unwritten,
    "shifted": shifted,
    "refuses": refuses,
}


@pytest.mark.parametrize("kernel", FAULTS.values(), ids=FAULTS.keys())
def test_a_kernel_with_a_fault_does_not(kernel: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "F", Torch(kernel))
    assert not try_kernel("cpu")


class Torch:
    """torch.nn.functional with another grouped product."""

    linear = staticmethod(F.linear)

    def __init__(self, grouped_mm: Callable[..., Tensor]) -> None:
        self.grouped_mm = grouped_mm


def test_what_a_trial_said_is_told() -> None:
    assert trial_fault(["sh", "-c", "exit 0"]) is None
    assert trial_fault(["sh", "-c", f"exit {WRONG}"], "is odd") == "is odd"
    assert trial_fault(["sh", "-c", "kill -SEGV $$"]) == "crashes"
    assert trial_fault(["sh", "-c", "exit 1"]) is None  # a GPU that only one process may use


def test_a_trial_that_hangs_is_ended() -> None:
    assert trial_fault([sys.executable, "-c", "import time; time.sleep(60)"], timeout_seconds=0.2) == "hangs"


@pytest.mark.gpu
def test_the_kernel_of_this_gpu_passes() -> None:
    assert torch.cuda.get_device_capability() < grouped.CAPABILITY or fault() is None


class HangingTrial:
    """A trial that ends without a verdict, and counts how often it is begun."""

    def __init__(self) -> None:
        self.begun = 0

    def __call__(self) -> str:
        self.begun += 1
        return "hangs"


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> HangingTrial:
    """The trial of a pretended GPU."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    return HangingTrial()


def test_a_process_tries_once_and_says_that_experts_are_one_by_one(trial: HangingTrial) -> None:
    with pytest.warns(UserWarning, match="^torch's grouped_mm hangs on this GPU; using one matrix product per expert$"):
        assert not has_kernel(trial)
    assert not has_kernel(trial)
    assert trial.begun == 1


def test_the_trial_is_no_part_of_a_compiled_program(trial: HangingTrial) -> None:
    hold_constants()

    def products(x: Tensor) -> Tensor:
        return x + 1 if has_kernel(trial) else x - 1

    with pytest.warns(UserWarning, match="grouped_mm hangs"):
        out = torch.compile(products, backend="eager", fullgraph=True)(torch.zeros(3))
    assert out.tolist() == [-1, -1, -1]
    assert trial.begun == 1


def test_a_cpu_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: pytest.fail("asked for a GPU"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_group(torch.zeros(4, 8), torch.zeros(2, 8, 8))
    load = torch.tensor([0, 4])
    rows, weight = torch.randn(4, 8), torch.randn(2, 8, 8)
    torch.testing.assert_close(grouped_product(rows, weight, None, load), rows @ weight[1].T)
