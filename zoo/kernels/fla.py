"""The recurrences of linear mixers by the kernels of flash-linear-attention (Yang & Zhang 2024,
github.com/fla-org/flash-linear-attention), where they are installed: in bfloat16, on CUDA.

They compute what `scan` and `delta_scan` do, rounded otherwise. Queries, keys and values are rounded to bfloat16, and
so is the state wherever a chunk reads it; sums, decays and the state itself are in float32. Sizes of blocks are chosen
by timing them when a kernel first runs, so two processes need not agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata

import torch
from torch import Tensor

from zoo.attend import note
from zoo.kernels.precision import computed_in
from zoo.kernels.tracing import device_type

OLDEST = 0, 6
"""Version of fla-core whose operators take what they are given here."""
CAPABILITY = 8, 0
"""The first GPUs with bfloat16."""
WRITTEN_OUT = "scan (written out)"
"""Backend of a scan that is traced for a GPU."""
LEAST_TOKENS = 64
"""A chunk of theirs. Shorter texts are read to be continued, and have many lengths."""
LEAST_FEATURES, MOST_FEATURES, ALIGNED = 16, 256, 8
"""Smallest and largest key width of the kernels; rows of keys and values are multiples of 8 features, 16 bytes."""


@dataclass(frozen=True)
class ScanKernels:
    """A library's kernels for scans. library: its name and version, as results name it; device: the kind that they run
    on; dtype: of their queries, keys and values."""

    library: str
    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16


_in_use: list[ScanKernels] = []
"""The kernels that compute scans, at most one. torch.compile cannot trace a ContextVar."""


def kernels_in_use() -> ScanKernels | None:
    """The kernels that compute the scans of this process; None where they are computed as they are written."""
    return _in_use[-1] if _in_use else None


@contextmanager
def scan_kernels(kernels: ScanKernels | None) -> Iterator[None]:
    """Let these kernels compute the scans inside the block; None for the scan as it is written."""
    before = list(_in_use)
    _in_use[:] = [] if kernels is None else [kernels]
    try:
        yield
    finally:
        _in_use[:] = before


def use_fla() -> bool:
    """Let fla's kernels compute the scans of this process, where they are installed (`pip install fla-core`) and the
    GPU can run them. Returns whether they do."""
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
    """Whether `fla_scan` is in use and can take queries, keys and values like these. A trace for a GPU that is not
    there (`zoo.kernels.tracing`) follows the scan as it is written, and says so."""
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
    """`scan`, or `delta_scan` where there is a strength, from a state, or zero.

    q, k: (B, G, T, n), v: (B, H, T, p), decay: (B, H, T) or (B, H, T, n), strength: (B, H, T), state: (B, H, n, p)
    → (B, H, T, p) in bfloat16, and the state after it if it is to be kept. Neither state has a gradient.
    """
    kernels = _in_use[-1]
    note(kernels.library, torch.is_grad_enabled() and v.requires_grad)
    if strength is None:  # their delta rules alone have keys that several heads share
        q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    wide = torch.promote_types(kernels.dtype, torch.float32)
    rounded = [x.to(kernels.dtype).transpose(1, 2) for x in (q, k, v)]
    exact = [None if x is None else x.to(wide).transpose(1, 2) for x in (decay, strength)]
    out, after = torch.ops.ablate_fla.scan(*rounded, *exact, state, keep)
    return out.transpose(1, 2), after.detach() if keep else None
