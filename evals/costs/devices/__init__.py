"""Devices as data: one YAML file each, with its data sheet. `this` is the current machine, measured."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from ruamel.yaml import YAML

from zoo.settings.axis import Spec
from zoo.settings.explain import unknown

Share = Annotated[float, Field(gt=0, le=1)]

THIS = "this"
REACHED = (
    "assumed: 60 % of peak FLOP/s, between the 43 % of training Llama 3 (arXiv:2407.21783, table 4) and the 76 % of "
    "prefilling PaLM (arXiv:2211.05102); 69 % of bandwidth, what gpt-fast measures in decoding Llama 2 7B on one A100 "
    "(1,397 of 2,039 GB/s, https://github.com/pytorch-labs/gpt-fast), its overheads included"
)


class Device(Spec):
    """Capabilities of a device, and the share of them that programs reach."""

    name: str
    """Name of its file, by which commands and functions choose it."""
    title: str
    """Name of the device in tables and messages."""
    names: tuple[str, ...] = Field(default=(), strict=False)
    """Names of the device in torch."""
    source: str
    """Source of its figures: the vendor's data sheet, or a measurement."""
    memory_bytes: PositiveInt
    """Memory of the device, in bytes."""
    bandwidth_bytes_per_second: PositiveFloat
    """Peak memory bandwidth, in bytes per second."""
    flops_per_second: dict[str, PositiveFloat]
    """Peak FLOP/s of dense matrix products, without sparsity, by the type of their operands."""
    tf32_flops_per_second: PositiveFloat | None = None
    """Peak FLOP/s of float32 products rounded to TF32, which training uses on GPUs that have them."""
    compute_share: Share = 0.6
    """Share of `flops_per_second` that programs reach."""
    bandwidth_share: Share = 0.69
    """Share of `bandwidth_bytes_per_second` that programs reach."""
    overhead_seconds_per_layer: NonNegativeFloat = 0.0
    """Seconds that each layer adds to every pass, besides computing and moving bytes."""
    memory_share: Share = 0.9
    """Share of memory for weights and cache; the rest is for activations (vLLM's default gpu_memory_utilization)."""
    shares_source: str = REACHED
    """Source of the shares."""

    def training_flops_per_second(self, dtype: str) -> float:
        """FLOP/s of matrix products when training in this type. Raises DeviceError."""
        if dtype == "float32" and self.tf32_flops_per_second is not None:
            return self.tf32_flops_per_second
        return self.rate(dtype)

    def rate(self, dtype: str) -> float:
        """FLOP/s of matrix products with operands of this type. Raises DeviceError."""
        if dtype in self.flops_per_second:
            return self.flops_per_second[dtype]
        known = ", ".join(self.flops_per_second)
        raise DeviceError(f"device {self.name} has no FLOP/s for {dtype}, only for {known}")


class DeviceError(ValueError):
    """There is no such device, or it lacks the requested rate."""


def names() -> list[str]:
    """Names of the devices that have a file, in alphabetical order."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


@functools.cache
def device(name: str) -> Device:
    """A device by name. Raises DeviceError with the nearest name."""
    if name not in names():
        raise DeviceError(unknown("device", name, [*names(), THIS]))
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return Device(name=name, **YAML(typ="safe", pure=True).load(text))


@functools.cache
def published_flops_per_second(gpu: str, dtype: str) -> float | None:
    """FLOP/s of training's matrix products, from the data sheet of the GPU that torch calls `gpu`; None without one."""
    sheet = next((sheet for sheet in map(device, names()) if gpu in sheet.names), None)
    return None if sheet is None else sheet.training_flops_per_second(dtype)
