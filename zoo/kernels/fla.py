"""The recurrences of linear mixers by the kernels of flash-linear-attention (Yang & Zhang 2024,
github.com/fla-org/flash-linear-attention), if installed: in bfloat16, on CUDA.

They compute `scan` and `delta_scan` with different rounding. Queries, keys and values are rounded to bfloat16, and so
is the state wherever a chunk reads it; sums, decays and the state itself are in float32. Block sizes are autotuned when
a kernel first runs, so two processes need not agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata

import torch
from torch import Tensor

from zoo.attend import note
from zoo.kernels.compiling import device_type
from zoo.kernels.precision import computed_in

OLDEST = 0, 6
"""Oldest version of fla-core whose operators take the arguments used here."""
CAPABILITY = 8, 0
"""Compute capability of the first GPUs with bfloat16."""
WRITTEN_OUT = "scan (written out)"
"""Backend name of a scan that is traced for a GPU."""
LEAST_TOKENS = 64
"""Chunk size of the kernels. Shorter texts are prompts to be continued, and have many lengths."""
LEAST_FEATURES, MOST_FEATURES, ALIGNED = 16, 256, 8
"""Smallest and largest key width of the kernels; rows of keys and values are multiples of 8 features, 16 bytes."""


@dataclass(frozen=True)
class ScanKernels:
    """A library's kernels for scans. library: its name and version, as results name it; device: the type that they run
    on; dtype: of their queries, keys and values."""

    library: str
    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16


_in_use: list[ScanKernels] = []
"""The kernels that compute scans, at most one entry. torch.compile cannot trace a ContextVar."""


def kernels_in_use() -> ScanKernels | None:
    """The kernels that compute the scans of this process; None for the scan written out in torch."""
    return _in_use[-1] if _in_use else None


@contextmanager
def scan_kernels(kernels: ScanKernels | None) -> Iterator[None]:
    """Compute the scans inside the block with these kernels; None for the scan written out in torch."""
    before = list(_in_use)
    _in_use[:] = [] if kernels is None else [kernels]
    try:
        yield
    finally:
        _in_use[:] = before


def use_fla() -> bool:
    """Compute the scans of this process with fla's kernels, if they are installed (`pip install fla-core`) and the GPU
    can run them. Returns whether kernels, these or others set before, are in use."""
    version = _version()
    if not _in_use and version and torch.cuda.get_device_capability() >= CAPABILITY:
        import zoo.kernels.fla_operators  # noqa: F401, PLC0415 (registers them, only where they are used)

        _in_use[:] = [ScanKernels(f"flash-linear-attention {version}")]
    return bool(_in_use)


def _version() -> str | None:
    """Version of fla-core; None where it is missing or too old."""
    try:
        version = metadata.version("fla-core")
    except metadata.PackageNotFoundError:
        return None
    first, second = version.split(".")[:2]
    return version if (int(first), int(second)) >= OLDEST else None


def can_scan(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `fla_scan` is in use and can take queries, keys and values like these. A trace for an absent GPU
    (`zoo.kernels.compiling`) follows the written-out scan, and notes that."""
    if device_type(v) == "cuda" != v.device.type:
        note(WRITTEN_OUT, torch.is_grad_enabled())
        return False
    kernels = kernels_in_use()
    if kernels is None or v.device.type != kernels.device or torch.are_deterministic_algorithms_enabled():
        return False
    rounded = any(computed_in(x) == kernels.dtype for x in (q, k, v))
    features, aligned = k.shape[-1], all(x.shape[-1] % ALIGNED == 0 for x in (k, v))
    return rounded and aligned and LEAST_FEATURES <= features <= MOST_FEATURES and v.shape[2] >= LEAST_TOKENS


def fla_scan(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor | None, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """`scan`, or `delta_scan` if a strength is given, from an initial state or zero.

    q, k: (B, G, T, n), v: (B, H, T, p), decay: (B, H, T) or (B, H, T, n), strength: (B, H, T), state: (B, H, n, p)
    → (B, H, T, p) in bfloat16, and the final state if `keep`. Neither state has a gradient.
    """
    kernels = _in_use[-1]
    note(kernels.library, torch.is_grad_enabled() and v.requires_grad)
    if strength is None:  # only their delta rules take keys that several heads share
        q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    wide = torch.promote_types(kernels.dtype, torch.float32)
    rounded = [x.to(kernels.dtype).transpose(1, 2) for x in (q, k, v)]
    exact = [None if x is None else x.to(wide).transpose(1, 2) for x in (decay, strength)]
    out, after = torch.ops.ablate_fla.scan(*rounded, *exact, state, keep)
    return out.transpose(1, 2), after.detach() if keep else None
