"""Number formats and matmul precision: part of a run's identity, because they change the bits of its result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evals.costs.peaks import ProductError, use_fast_float32
from store.documents import RunNumerics
from store.errors import AblateError
from zoo.attending.fused import use_flash_3
from zoo.kernels.fla import use_fla


class NumericsError(AblateError):
    """This machine's numerics are not those of the run's identity."""


@dataclass(frozen=True)
class Numerics:
    """`device` is "cpu" or "cuda". `dtype` bfloat16 means autocast over float32 weights and optimiser state.

    `matmul` is torch's float32 matmul precision. On a CPU "medium" is used only if it was found to be exact (see
    `evals.costs.peaks`), and "highest" otherwise; on CUDA "high" allows TF32. gpu: the GPU and the packages that
    determine its kernels; None on a CPU, and if a run is planned for GPUs elsewhere.
    """

    device: str
    dtype: str
    matmul: str
    gpu: str | None = None

    def identity(self) -> RunNumerics:
        """These numerics as a part of a run's identity."""
        return RunNumerics(device=self.device, dtype=self.dtype, matmul=self.matmul, gpu=self.gpu)

    def meets(self, wanted: RunNumerics) -> bool:
        """Whether a run that was planned with `wanted` may be executed with these numerics."""
        own = self.identity()
        return own == wanted or (wanted.gpu is None and own.model_copy(update={"gpu": None}) == wanted)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of matrix products."""
        return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16")


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """If `wanted`, the block uses only CUDA kernels that add in a fixed order. An operation without one raises an error
    that names it. Matrix products are included only if this comes before the first of them in the process.

    A CPU always adds in a fixed order.
    """
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    settings: Any = torch.utils.deterministic
    before, filled = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = False  # no code reads such memory
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = filled


def enforce(device: str, dtype: str, threads: int = 1, error: ProductError | None = None) -> Numerics:
    """Set this process's numerics, and return them.

    Subnormal numbers are flushed to zero on a CPU: arithmetic on them takes a hundred times as long, and the second
    moments of AdamW pass through their range.

    error: the error of float32 products by shape; None measures it.
    """
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        return Numerics(device, dtype, "high", gpu_name() if torch.cuda.is_available() else None)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    return Numerics(device, dtype, use_fast_float32(error))


def enforce_as(wanted: RunNumerics, threads: int) -> Numerics:
    """Set the numerics of a run's identity. Raises NumericsError if this machine has others."""
    found = enforce(wanted.device, wanted.dtype, threads)
    if not found.meets(wanted):
        asked, given = wanted.model_dump(), found.identity().model_dump()
        raise NumericsError(f"the run requires {asked}, but this machine has {given}")
    return found


def gpu_name() -> str:
    """Names of the GPU and of the packages that determine its kernels."""
    packages = {"FlashAttention-3": use_flash_3(), "flash-linear-attention": use_fla()}
    version = torch.backends.cudnn.version()  # torch uses its attention if it is new enough
    cudnn = [] if version is None else [f"cuDNN {version}"]
    return ", ".join([torch.cuda.get_device_name(), *cudnn, *(name for name, used in packages.items() if used)])


@contextmanager
def restored() -> Iterator[None]:
    """Restore torch's settings afterwards: a caller from Python has other work in this process."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    flushes = sys.float_info.min / 2 == 0  # a flag of this thread's processor that torch can set but not read
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(flushes)


def unused_gpu(driver: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Why torch cannot use this machine's NVIDIA GPU; None if it can, or if there is none."""
    if torch.cuda.is_available() or not driver.exists():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    return (
        f"torch finds no device: CUDA_VISIBLE_DEVICES hides it, or the driver is too old for CUDA {torch.version.cuda}"
    )


def pick_device() -> str:
    """The device of this machine: "cuda" if torch can use a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


# GPUs of this machine that a study's runs may use: those of one kind, which is part of the runs' identity. Losses
# differ between kinds in their last digits, and speeds by more. CUDA_VISIBLE_DEVICES chooses another kind, whose runs
# have an identity of their own.


class Gpu(NamedTuple):
    """number: torch's index, in this process. place: its entry in CUDA_VISIBLE_DEVICES. kind: its name."""

    number: int
    place: str
    kind: str


def visible_gpus() -> list[Gpu]:
    """All GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    places = named.split(",")[:count] if named else map(str, range(count))
    return [Gpu(number, place, torch.cuda.get_device_name(number)) for number, place in enumerate(places)]


def alike_gpus() -> list[Gpu]:
    """The visible GPUs of the same kind as the first."""
    found = visible_gpus()
    return [gpu for gpu in found if gpu.kind == found[0].kind]


def unlike_gpus() -> str | None:
    """Why some GPUs are not used; None if all are of one kind."""
    found = visible_gpus()
    others = [gpu for gpu in found if gpu.kind != found[0].kind]
    if not others:
        return None
    kinds, places = ", ".join(dict.fromkeys(gpu.kind for gpu in others)), ",".join(gpu.place for gpu in others)
    return (
        f"Runs of a study use GPUs of one kind, here {found[0].kind}. Left out: {kinds}"
        f" (set CUDA_VISIBLE_DEVICES={places} to use these instead)."
    )
