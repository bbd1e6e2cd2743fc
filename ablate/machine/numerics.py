"""How numbers are represented and multiplied: part of a run's identity, because it changes its bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch

from ablate.store.documents import RunNumerics
from evals.costs.precision import use_fast_float32


@dataclass(frozen=True)
class Numerics:
    """`device` is "cpu" or "cuda". `dtype` bfloat16 means autocast over float32 weights and optimiser state.

    `matmul` is torch's float32 matmul precision. On a CPU "medium" is in force only where it was found to be exact
    (see `evals.costs.precision`), and "highest" otherwise; on CUDA "high" allows TF32.
    """

    device: str
    dtype: str
    matmul: str

    def identity(self) -> RunNumerics:
        """As the identity of a run has them."""
        return RunNumerics(device=self.device, dtype=self.dtype, matmul=self.matmul)

    @property
    def torch_dtype(self) -> torch.dtype:
        """What matrix products are computed in."""
        return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16")


def enforce(device: str, dtype: str, threads: int = 1) -> Numerics:
    """Put this process's numerics in force and say what they are.

    Subnormal numbers are flushed to zero on a CPU: they cost a hundred times a normal one, and the second moments of
    AdamW pass through them.
    """
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        return Numerics(device, dtype, "high")
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    return Numerics(device, dtype, use_fast_float32())


@contextmanager
def restored() -> Iterator[None]:
    """Put torch's settings back in the end: whoever calls from Python has work of their own in this process."""
    threads, precision, flushes = torch.get_num_threads(), torch.get_float32_matmul_precision(), _flushes_denormal()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(flushes)


def _flushes_denormal() -> bool:
    """torch has a switch for it, and nothing that reads the switch."""
    smallest = torch.finfo(torch.float32).tiny
    return bool((torch.tensor([smallest]) / 2 == 0).item())


def pick_device() -> str:
    """ "cuda" where there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"
