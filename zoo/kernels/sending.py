"""Copies of numbers from the host to a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def on_device(values: Any, device: torch.device) -> Tensor:
    """`torch.tensor(values, device=device)` without a synchronisation: a GPU copies from pinned memory. In a compiled
    program the values are constants."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return torch.tensor(values, device=device)
    return torch.tensor(values, pin_memory=True).to(device, non_blocking=True)
