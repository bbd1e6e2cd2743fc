"""Roofline of a training step on a device that need not be present, from the counted work of the step: arithmetic only.

A step takes max(launches, slower · (other bytes / bandwidth + max(FLOPs / peak, their bytes / bandwidth))), with the
shares of peak and bandwidth that programs reach (`evals.costs.devices`): kernels run one after another on the device,
and if they are short, the host takes longer to launch them than they take to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ablate.wings.foretell.operators import Work
from evals.costs.devices import Device

StepBound = Literal["memory", "launches", "products"]

SECONDS_PER_LAUNCH = {False: 8e-6, True: 4e-6}
"""Assumed seconds, by `compiled`: for an operation that Python issues with autograd, and for a compiled kernel."""

SLOWER = {False: 1.25, True: 1.65}
"""Measured time of a step over its roofline on one H200, at `gpu-hour`'s shape, by `compiled` (compiled: 1.55, 1.66 and
1.74 for three arms; docs/benchmarks/gpu.md)."""


@dataclass(frozen=True)
class StepSeconds:
    """Time of one training step. products_seconds: of matrix products alone; memory_seconds: of moving bytes alone;
    launch_seconds: of the host's launches."""

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
    """Predicted time of a step. dtype: of its matrix products. slower: factor on the device's time; 1 for the plain
    roofline. Raises DeviceError."""
    bandwidth = device.bandwidth_share * device.bandwidth_bytes_per_second
    products = work.flops / (device.compute_share * device.training_flops_per_second(dtype))
    launches = work.launches * SECONDS_PER_LAUNCH[compiled]
    busy = work.other_bytes / bandwidth + max(products, work.product_bytes / bandwidth)
    return StepSeconds(max(launches, slower * busy), slower * products, slower * work.bytes / bandwidth, launches)
