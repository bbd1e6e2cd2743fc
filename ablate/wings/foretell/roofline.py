"""Roofline prediction of prefill and decoding on a device: arithmetic only, nothing is built or run.

A pass takes max(FLOPs / (share of peak), bytes / (share of bandwidth)) + overhead (Williams et al. 2009,
doi:10.1145/1498765.1498785). FLOPs are those of `zoo.costs`: elementwise work, softmax and norms count as zero, as do
the bytes of activations. One device: there is no communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from ablate.wings.foretell.fit import largest_batch, largest_context
from evals.costs.devices import Device
from zoo.costs import BYTES, cost
from zoo.costs_decoding import PassCost, decode_cost, prefill_cost
from zoo.errors import SpecError
from zoo.lengths import longest_context
from zoo.spec import ModelSpec

Bound = Literal["compute", "memory", "overhead"]


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
