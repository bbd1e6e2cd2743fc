"""The fastest matrix products on a CPU that are exact to float32."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

_LARGEST_RELATIVE_ERROR = 1e-5
# Rows × inner × columns of a projection, a feed-forward layer and a square: libraries choose kernels by shape.
_PROBES = ((2048, 128, 128), (2048, 128, 344), (512, 512, 512))


ProductError = Callable[[int, int, int], float]
"""Relative error of a product of rows × inner and inner × columns."""


def use_fast_float32(error: ProductError | None = None) -> str:
    """Let the CPU's matrix products use another kernel, if it is as exact; return the setting now in force.

    On processors without matrix units "medium" picks a kernel that is true float32 and up to twice as fast; on others
    it rounds inputs to bfloat16. So it is kept only if products agree with float64 to a relative error of 1e-5. Results
    of the two settings differ in their last bits, so the setting belongs to a run's identity. It is meant for work on
    the CPU: on CUDA the same setting means TF32.

    error: relative error of a product; None to measure it.
    """
    torch.set_float32_matmul_precision("medium")
    worst = max(error(*shape) for shape in _PROBES) if error else _worst_error(torch.get_num_threads())
    found = "highest" if worst > _LARGEST_RELATIVE_ERROR else "medium"
    torch.set_float32_matmul_precision(found)
    return found


@functools.cache
def _worst_error(_threads: int) -> float:
    """Largest error of the probes under "medium", which is in force. Libraries choose kernels by shape and threads."""
    return max(relative_error(*shape) for shape in _PROBES)


def relative_error(rows: int, inner: int, columns: int) -> float:
    """‖AB − (AB)₆₄‖ / ‖(AB)₆₄‖ for random A and B."""
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=draw), torch.randn(inner, columns, generator=draw)
    exact = a.double() @ b.double()
    return float((a @ b - exact).norm() / exact.norm())
