"""Ceilings of a machine, and the share of them that a phase reaches."""

from __future__ import annotations

from typing import NamedTuple

import torch

import zoo
from evals.costs import matmul
from evals.costs.bandwidth import copy_bytes_per_second
from zoo.costs_decoding import decode_cost
from zoo.spec import ModelSpec


class Ceilings(NamedTuple):
    """Peak rates: FLOPs of large matrix products, and bytes read and written in a copy of a large tensor."""

    flops_per_second: float
    copy_bytes_per_second: float


def measured(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Ceilings of this machine. Takes a second."""
    return Ceilings(matmul.peak_flops_per_second(device, dtype), copy_bytes_per_second(device))


def share(
    phase: str, spec: ModelSpec, context: int, batch: int, dtype: torch.dtype, tokens_per_second: float, top: Ceilings
) -> float:
    """Share that a phase reaches of its ceiling. For training and prefill: FLOP/s that the architecture needs, over
    those of matrix products. For decoding: bytes per second of weights and cache that steps read, over those of a copy;
    above 1 if they lie in the processor's caches."""
    if phase == "decode":
        step = decode_cost(spec, batch, context).bytes(dtype)
        return step * tokens_per_second / batch / top.copy_bytes_per_second
    cost = zoo.cost(spec, context)
    flops = cost.flops_per_token if phase == "train" else cost.flops_per_token_forward
    flops += (cost.flops_per_step if phase == "train" else cost.flops_per_pass) / (batch * context)
    return flops * tokens_per_second / top.flops_per_second
