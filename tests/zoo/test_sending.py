"""Numbers that are sent to a device are the same whichever way they take."""

from __future__ import annotations

import pytest
import torch

from tests.waits import no_waits
from zoo.kernels.compiling import on_device

VALUES = ([0.1, 2**-0.5, 3.0], [[1, 2], [3, 4]], [])


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_on_a_cpu_it_is_a_tensor(values: list[float]) -> None:
    torch.testing.assert_close(on_device(values, torch.device("cpu")), torch.tensor(values), rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("values", VALUES, ids=str)
def test_a_gpu_gets_the_same_without_a_wait(values: list[float]) -> None:
    with no_waits():
        sent = on_device(values, torch.device("cuda"))
    torch.testing.assert_close(sent.cpu(), torch.tensor(values), rtol=0, atol=0)
