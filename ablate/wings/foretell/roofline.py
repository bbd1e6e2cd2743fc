"""Roofline prediction of prefill, decoding and training steps on a device, and the largest batch and context that its
memory holds: arithmetic only, nothing is built or run.

A pass takes max(FLOPs / (share of peak), bytes / (share of bandwidth)) + overhead (Williams et al. 2009,
doi:10.1145/1498765.1498785). FLOPs are those of `zoo.costs`: elementwise work, softmax and norms count as zero, as do
the bytes of activations. One device: there is no communication.

What fits follows from the declared bytes of weights and cache; a share of the memory is left for everything else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from ablate.wings.foretell.operators import Work
from evals.costs.devices import Device
from evals.costs.spec import NO_CACHE
from zoo.costs import BYTES, Cost, cost
from zoo.costs_decoding import PassCost, decode_cost, prefill_cost
from zoo.errors import SpecError
from zoo.spec import ModelSpec, longest_context

Bound = Literal["compute", "memory", "overhead"]
StepBound = Literal["memory", "launches", "products"]


@dataclass(frozen=True)
class PredictedPhase:
    """One pass. seconds = max(compute_seconds, memory_seconds) + overhead_seconds."""

    flops: float
    bytes: float
    compute_seconds: float
    memory_seconds: float
    overhead_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds) + self.overhead_seconds

    @property
    def bound(self) -> Bound:
        """The part that takes longest."""
        parts: dict[Bound, float] = {
            "memory": self.memory_seconds,
            "compute": self.compute_seconds,
            "overhead": self.overhead_seconds,
        }
        return max(parts, key=lambda part: parts[part])


@dataclass(frozen=True)
class Prediction:
    """Predicted costs of a model on one device, at a batch of rows of `context` tokens.

    prefill reads all rows' `context` tokens; decode generates one token per row, the last of `context`. An encoder, if
    there is one, reads the `context` tokens, and the decoder has generated as many. Seconds assume that weights and
    cache fit, whether or not they do.
    """

    parameters: int
    parameters_active: int
    weight_bytes: int
    cache_bytes: int
    usable_bytes: float
    batch: int
    prefill: PredictedPhase
    decode: PredictedPhase
    largest_batch: int
    """Largest batch at this context; 0 if not even one row fits."""
    largest_context: int | None
    """Largest context at this batch; 0 if the weights do not fit, None if the cache does not limit it."""

    @property
    def tokens_per_second(self) -> float:
        """Decoded tokens per second, of all rows together."""
        return self.batch / self.decode.seconds

    @property
    def devices(self) -> int:
        """Number of devices that hold weights and cache, if these could be divided evenly."""
        return ceil((self.weight_bytes + self.cache_bytes) / self.usable_bytes)


def predict(spec: ModelSpec, device: Device, *, context: int, batch: int = 1, dtype: str = "bfloat16") -> Prediction:
    """Roofline prediction for a model with weights, cache and products in `dtype`.

    Raises:
        SpecError: the model cannot read so many tokens, or is an encoder, which generates none.
        DeviceError: the device has no rate for this type.
    """
    longest = longest_context(spec)
    if longest is not None and context > longest:
        raise SpecError("context", f"the model reads at most {longest} tokens, not {context}")
    costs, encoding = cost(spec, context), 0 if spec.encoder is None else spec.encoder.n_layers
    weights, usable = costs.params * BYTES[dtype], device.memory_share * device.memory_bytes
    return Prediction(
        parameters=costs.params,
        parameters_active=costs.params_active,
        weight_bytes=weights,
        cache_bytes=costs.cache_bytes(batch, context, dtype),
        usable_bytes=usable,
        batch=batch,
        prefill=_phase(prefill_cost(spec, batch, context), spec.n_layers + encoding, device, dtype),
        decode=_phase(decode_cost(spec, batch, context), spec.n_layers, device, dtype),
        largest_batch=largest_batch(costs, usable - weights, context, dtype),
        largest_context=largest_context(costs, usable - weights, batch, dtype),
    )


def _phase(work: PassCost, layers: int, device: Device, dtype: str) -> PredictedPhase:
    moved = work.bytes(dtype)
    return PredictedPhase(
        flops=work.flops,
        bytes=moved,
        compute_seconds=work.flops / (device.compute_share * device.rate(dtype)),
        memory_seconds=moved / (device.bandwidth_share * device.bandwidth_bytes_per_second),
        overhead_seconds=layers * device.overhead_seconds_per_layer,
    )


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
    """Predicted time of a training step, from its counted work on a device that need not be present.

    The larger of launches, and slower · (other bytes / bandwidth + max(FLOPs / peak, their bytes / bandwidth)), with
    the shares of peak and bandwidth that programs reach: kernels run one after another on the device, and if they are
    short, the host takes longer to launch them than they take to run.

    dtype: of its matrix products. slower: factor on the device's time; 1 for the plain roofline. Raises DeviceError.
    """
    bandwidth = device.bandwidth_share * device.bandwidth_bytes_per_second
    products = work.flops / (device.compute_share * device.training_flops_per_second(dtype))
    launches = work.launches * SECONDS_PER_LAUNCH[compiled]
    busy = work.other_bytes / bandwidth + max(products, work.product_bytes / bandwidth)
    return StepSeconds(max(launches, slower * busy), slower * products, slower * work.bytes / bandwidth, launches)


ENDLESS = 2**40
"""A context that no device holds unless the cache stops growing."""


@dataclass(frozen=True)
class Fit:
    """Batches and contexts that fit beside the weights. `usable_bytes` is the memory for weights and cache."""

    parameters: int
    weight_bytes: int
    usable_bytes: float
    batches: dict[int, int | None]
    """Largest batch by context: 0 if not even one row fits, None if the model's positions end earlier."""
    batch: int
    largest_context: int | None
    """Largest context at `batch`: 0 if the weights do not fit, None if the cache does not limit it."""


def fit(
    spec: ModelSpec, memory_bytes: float, *, contexts: Sequence[int], batch: int = 1, dtype: str, share: float = 0.9
) -> Fit:
    """Largest batches and context, with weights and cache in `dtype`. share: share of the memory for both together.

    With an encoder, a context is that many tokens of the encoder and of the decoder. Raises SpecError for an
    encoder-only model.
    """
    if spec.visible == "all":
        raise SpecError("visible", NO_CACHE)
    costs, longest = cost(spec), longest_context(spec)
    weights, usable = costs.params * BYTES[dtype], share * memory_bytes
    readable = {context: longest is None or context <= longest for context in contexts}
    return Fit(
        parameters=costs.params,
        weight_bytes=weights,
        usable_bytes=usable,
        batches={c: largest_batch(costs, usable - weights, c, dtype) if readable[c] else None for c in contexts},
        batch=batch,
        largest_context=largest_context(costs, usable - weights, batch, dtype),
    )


def largest_batch(costs: Cost, free: float, context: int, dtype: str) -> int:
    """Number of rows whose caches fit into `free` bytes."""
    return max(0, int(free // costs.cache_bytes(1, context, dtype)))


def largest_context(costs: Cost, free: float, batch: int, dtype: str) -> int | None:
    """The largest context whose cache fits into `free` bytes; None if there is no limit."""
    longest = longest_context(costs.spec)

    def is_too_long(context: int) -> bool:
        return costs.cache_bytes(batch, context, dtype) > free

    if not is_too_long(longest or ENDLESS):
        return longest
    return bisect_left(range(1, longest or ENDLESS), True, key=is_too_long)  # longer contexts are too long, too
