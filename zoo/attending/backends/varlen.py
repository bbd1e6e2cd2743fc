"""FlashAttention over texts packed end to end (torch's varlen_attn): windows without a mask, and without compiling a
program for each shape. Dao 2023, arXiv:2307.08691.

The kernel runs on CUDA, in 16-bit types. The first model with windows in a process compares it with the plain backend
in a subprocess (`zoo.attending.backends._varlen_trial`); if it is faulty, windows use another backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from zoo.attending.visible import Needs, Scoring, Visible
from zoo.kernels.compiling import constant
from zoo.kernels.precision import as_autocast_has_it
from zoo.kernels.trial import is_right, trial_fault, trial_of
from zoo.settings.axis import number

RANK, KERNEL, HOOKED = 0, True, True
MOST_FEATURES = 256
DTYPES = (torch.bfloat16, torch.float16)
TRIAL = trial_of("zoo.attending.backends._varlen_trial")
"""The command that tries the kernel on this machine's GPU."""
HAS_WINDOWS = torch.__version__ >= "2.13"  # compared as versions
"""Earlier versions have the kernel, but torch's interface to it lacks windows or grouped heads."""


def obstacle(needs: Needs) -> str | None:
    fewest, most = needs.features
    if needs.window is None or needs.pattern or not needs.aligned or not needs.plain_scores or needs.dropout:
        return "needs a window over unpadded, uncached text, plain scores and no dropout"
    if fewest != most or most > MOST_FEATURES or most % 8:
        return f"needs heads of one size, a multiple of 8 up to {MOST_FEATURES}"
    return None if HAS_WINDOWS else "needs torch 2.13"


def pays(device: str, dtype: torch.dtype, needs: Needs) -> bool:
    return device == "cuda" and dtype in DTYPES and not needs.whole and has_kernel()


@constant
def has_kernel(trial: Callable[[], str | None] | None = None) -> bool:
    """Whether this machine's GPU has a kernel that computes correctly; true on a machine without one, whose plans are
    for a GPU elsewhere. trial: returns the kernel's fault or None, and is called at most once per process."""
    return not torch.cuda.is_available() or is_right(trial or fault, "varlen_attn", "windows use another kernel")


def fault() -> str | None:
    """Fault of this GPU's kernel that a trial finds; None if it finds none."""
    return trial_fault(TRIAL)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 (registers operators; older torch has none)

    batch, _, length, _ = q.shape
    ends = torch.arange(0, (batch + 1) * length, length, device=q.device, dtype=torch.int32)  # offsets of the texts
    window = (number(visible.window) - 1, 0)  # keys before and after the query, without its own
    grouped = q.shape[1] != k.shape[1]
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in as_autocast_has_it(q, k, v))  # (B·T, H, d)
    out = varlen_attn(q, k, v, ends, ends, length, length, scale=scoring.scale, window_size=window, enable_gqa=grouped)
    mixed: Tensor = cast(Tensor, out).unflatten(0, (batch, length)).transpose(1, 2)
    return mixed
