"""Roofline of a training step on a device that is not at hand, from what the step asks of it: arithmetic alone.

A step takes max(launches, slower · (other bytes / bandwidth + max(FLOPs / peak, their bytes / bandwidth))), with the
shares of peak and bandwidth that programs reach (`evals.costs.devices`): kernels follow each other on the device, and
where they are short, the host that launches them is slower than they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evals.costs.devices import Device
from evals.costs.operators import Work

StepBound = Literal["memory", "launches", "products"]

SECONDS_PER_LAUNCH = {False: 8e-6, True: 4e-6}
"""Assumed: of an operation that Python issues with its autograd, and of a kernel of a compiled program."""

SLOWER = {False: 1.25, True: 1.65}
"""Times its roofline that a step took on one H200, at `gpu-hour`'s shape: as it is written, and compiled (1.55, 1.66
and 1.74 for three arms; docs/benchmarks/gpu.md)."""


@dataclass(frozen=True)
class StepSeconds:
    """One training step. products_seconds: of matrix products, if they were all; memory_seconds: of moving bytes, if
    that were all; launch_seconds: of the host."""

    seconds: float
    products_seconds: float
    memory_seconds: float
    launch_seconds: float

    @property
    def bound(self) -> StepBound:
        """The part that takes longest."""
        parts: dict[StepBound, float] = {
            "memory": self.memory_seconds,
            "launches": self.launch_seconds,
            "products": self.products_seconds,
        }
        return max(parts, key=lambda part: parts[part])


def step_seconds(work: Work, device: Device, dtype: str, *, compiled: bool, slower: float = 1.0) -> StepSeconds:
    """Predicted time of a step. dtype: of its matrix products. slower: 1, a roofline. Raises DeviceError."""
    bandwidth = device.bandwidth_share * device.bandwidth_bytes_per_second
    products = work.flops / (device.compute_share * device.training_flops_per_second(dtype))
    launches = work.launches * SECONDS_PER_LAUNCH[compiled]
    busy = work.other_bytes / bandwidth + max(products, work.product_bytes / bandwidth)
    return StepSeconds(max(launches, slower * busy), slower * products, slower * work.bytes / bandwidth, launches)
