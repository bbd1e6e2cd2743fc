"""GPUs that are named and can run no kernels, for what is decided before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch


def pretend(monkeypatch: pytest.MonkeyPatch, kinds: Sequence[str], free: Sequence[int] = (), total: int = 80) -> None:
    """Let torch see a GPU of each of these names. free: bytes that other programs leave of each; total: of each."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(kinds))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (0, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: kinds[index])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], total))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=total, uuid="7-7"))
