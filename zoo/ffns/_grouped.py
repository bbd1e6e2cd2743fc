"""Grouped matrix products: those of all experts as one kernel, where torch has one that fits, in bfloat16 on CUDA.

`python -m zoo.ffns._grouped` tests that kernel on this machine's GPU. Such kernels are known to leave the results of
an expert without rows uninitialised, and to hang. So the first model with experts in a process runs the trial in a
subprocess that can be killed; if the kernel is faulty, each expert is a product of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.compiling import constant, device_type
from zoo.kernels.precision import computed_in
from zoo.kernels.trial import WRONG, agree, is_right, trial_fault, trial_of

CAPABILITY = 8, 0
"""Compute capability of the first GPUs that the kernel runs on."""
ALIGNED = 8
"""The kernel's rows begin at multiples of 16 bytes, so their length is a multiple of this many features."""
TRIAL = trial_of("zoo.ffns._grouped")
"""The command that tries the kernel on this machine's GPU."""
LOADS = ((0, 24, 0, 40, 0), (64, 0, 0, 0, 0), (0, 0, 1, 0, 63))
"""Rows of each expert in a trial, with empty experts at the beginning, between others, and at the end."""
TOLERANCE = 0.03
"""Largest relative error of a sum of products that are rounded to bfloat16."""


def can_group(rows: Tensor, weight: Tensor) -> bool:
    """Whether `grouped_product` can multiply rows like these, (M, in), by a weight of (E, out, in), and the gradient of
    their product by its transpose. A traced GPU (`zoo.kernels.compiling`) counts as having the kernel."""
    aligned = all(size % ALIGNED == 0 for size in weight.shape[1:])
    if not aligned or computed_in(rows) is not torch.bfloat16:
        return False
    return has_kernel() if rows.is_cuda else device_type(rows) == "cuda"


def fault() -> str | None:
    """Fault of this GPU's kernel that a trial finds; None if it finds none."""
    return trial_fault(TRIAL, "gives wrong results if an expert has no rows")


@constant
def has_kernel(trial: Callable[[], str | None] | None = None) -> bool:
    """Whether this GPU has a kernel that computes correctly. trial: returns the kernel's fault or None, and is called
    at most once per process; `fault` by default."""
    fits = hasattr(F, "grouped_mm") and torch.cuda.get_device_capability() >= CAPABILITY
    return fits and is_right(trial or fault, "grouped_mm", "using one matrix product per expert")


def grouped_product(rows: Tensor, weight: Tensor, bias: Tensor | None, load: Tensor) -> Tensor:
    """y_m = W_e x_m + b_e, where row m is one of expert e's: rows: (M, in), the first load[0] of them for expert 0, and
    so on, weight: (E, out, in), bias: (E, out) → (M, out), in the dtype of autocast.

    The load is not read on the host, so that nothing synchronises, and a compiled model stays one graph.
    """
    dtype = computed_in(rows)
    ends = load.cumsum(0, dtype=torch.int32)
    out: Tensor = F.grouped_mm(rows.to(dtype), weight.to(dtype).transpose(1, 2), offs=ends)
    if bias is None:
        return out
    return out + bias.to(dtype).repeat_interleave(load, dim=0, output_size=len(rows))


def try_kernel(device: str) -> bool:
    """Whether products and their gradients equal those of a loop over experts, with freed memory full of NaN."""
    return all(_agrees(load, shape, device) for load in LOADS for shape in ((32, 64), (64, 32)))


def _agrees(load: Sequence[int], shape: tuple[int, int], device: str) -> bool:
    inner, outer = shape
    draw = torch.Generator().manual_seed(0)
    rows, weight, gradient = (
        torch.randn(size, generator=draw).to(device, torch.bfloat16)
        for size in ((sum(load), inner), (len(load), outer, inner), (sum(load), outer))
    )

    def one_by_one(rows: Tensor, weight: Tensor) -> Tensor:
        parts = zip(rows.split(list(load)), weight, strict=True)
        return torch.cat([F.linear(part, of_expert) for part, of_expert in parts])

    expected, on_device = _results(rows, weight, gradient, one_by_one), torch.tensor(load, device=device)

    def grouped() -> tuple[Tensor, ...]:
        return _results(rows, weight, gradient, lambda x, w: grouped_product(x, w, None, on_device))

    return agree(grouped, expected, device, TOLERANCE)


def _results(
    rows: Tensor, weight: Tensor, gradient: Tensor, product: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, ...]:
    """A product, and the gradients of both its factors, in float32."""
    given = [each.clone().requires_grad_() for each in (rows, weight)]
    out = product(*given)
    return tuple(each.float() for each in (out.detach(), *torch.autograd.grad(out, given, gradient)))


if __name__ == "__main__":
    sys.exit(0 if try_kernel("cuda") else WRONG)
