"""The memory that work on this machine takes."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from ablate.wings.foretell.this_machine import peak_growth

MIB = 2**20
has_clear_refs = Path("/proc/self/clear_refs").exists()


@pytest.mark.skipif(not has_clear_refs, reason="needs /proc/self/clear_refs")
def test_growth_is_what_the_work_takes_and_freed_memory_does_not_hide_it() -> None:
    """Many small tensors that are freed lie with the C library: the same again still counts."""
    for _ in range(2):
        with peak_growth("cpu") as growth:
            kept = [torch.ones(2**14) for _ in range(512)]
            del kept
        assert growth.bytes == pytest.approx(32 * MIB, rel=0.2)


@pytest.mark.skipif(not has_clear_refs, reason="needs /proc/self/clear_refs")
def test_growth_does_not_live_on_garbage_of_before() -> None:
    """Which Python may collect at any time, here in the midst of the work."""
    gc.disable()
    garbage: list[object] = [torch.ones(2**14) for _ in range(256)]
    garbage.append(garbage)
    del garbage
    with peak_growth("cpu") as growth:
        gc.collect()
        kept = [torch.ones(2**14) for _ in range(512)]
        del kept
    gc.enable()
    assert growth.bytes == pytest.approx(32 * MIB, rel=0.2)
