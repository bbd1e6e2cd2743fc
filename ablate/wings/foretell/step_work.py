"""Kernels, bytes and matrix products of a training step on a GPU, counted without one, and the memory that it needs.

The step is training's own, run on fake tensors, with a shape but no data. A whole batch is one pass.

The fused kernels of torch.compile are estimated from those that `ablate.wings.foretell.operators` listed. Elementwise
and row-wise operations become one kernel if one reads another's result and no matrix product lies between; results that
only they read are never written. The backward pass recomputes such a result if reading its inputs is cheaper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.operators import Kernel, Use, Work, as_issued, counted
from ablate.wings.foretell.step_memory import BeforeUpdate, Live, learner_of, whole_batch
from zoo.attend import executed_backends
from zoo.spec import ModelSpec

_STATES = 4
"""float32 numbers for each weight: itself, its gradient, and AdamW's two moments."""


@dataclass(frozen=True)
class StepWork:
    """work: that of a step, compiled if training is. peak_bytes: most bytes alive; for a compiled step an estimate:
    weights with their gradients and two moments, activations for the backward pass, and the largest kernel's results.
    attention: backends of attention in the step."""

    work: Work
    peak_bytes: int
    attention: str | None


def step_work(spec: ModelSpec, train: TrainSpec, width: int | None = None) -> StepWork | None:
    """Work of one training step; None if its shapes depend on its data: experts that drop tokens beyond their capacity.
    width: tokens of the widest rows; None: the context. Takes a second or two."""
    return _counted(json.dumps(spec.dump()), train.model_dump_json(), width or train.context)


@lru_cache(maxsize=256)
def _counted(model: str, train: str, width: int) -> StepWork | None:
    spec, settings = zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train)
    found = traced(spec, settings, width)
    if found is None:
        return None
    work = as_compiled(found.kernels) if settings.compile else as_issued(found.kernels)
    peak = found.peak_bytes
    if work.kept_bytes is not None:
        largest = max(sum(use.bytes for use in kernel.writes) for kernel in found.kernels)
        peak = min(peak, 4 * _STATES * found.parameters + round(work.kept_bytes) + largest)
    return StepWork(work, peak, found.attention)


class TracedStep(NamedTuple):
    kernels: tuple[Kernel, ...]
    peak_bytes: int
    parameters: int
    attention: str | None


def traced(spec: ModelSpec, train: TrainSpec, width: int) -> TracedStep | None:
    numerics = Numerics("cpu", train.dtype, "highest")
    listening = executed_backends(training=True)
    counting = counted(compiled=train.compile)
    with (
        torch.random.fork_rng(),
        FakeTensorMode() as mode,
        Live() as live,
        listening as backends,
        counting as operators,
    ):
        learner, model = learner_of(spec, train, numerics, None, False)
        batch = whole_batch(train, spec, width).each(mode.from_tensor)
        operators.kernels.clear()

        def update_begins() -> None:
            operators.phase = "update"

        try:
            learner.learn(1, 0.0, batch, BeforeUpdate(update_begins))
        except (DynamicOutputShapeException, DataDependentOutputException):
            return None
    size = sum(parameter.numel() for parameter in model.parameters())
    return TracedStep(tuple(operators.kernels), live.peak, size, ", ".join(sorted(backends)) or None)


def as_compiled(kernels: Sequence[Kernel]) -> Work:
    """Estimated work if forward and backward pass are compiled; the optimizer's update counts as issued."""
    passes = list(_without_repeats(each for each in kernels if each.phase != "update"))
    issued = as_issued([each for each in kernels if each.phase == "update"])
    groups = list(_grouped(passes))
    moved, launches, kept = _moved(groups)
    heavy = as_issued([each for each in passes if each.flops])
    return Work(
        heavy.flops + issued.flops,
        heavy.product_bytes + issued.product_bytes,
        moved + issued.other_bytes,
        heavy.launches + launches + issued.launches,
        kept,
    )


def _without_repeats(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Kernels without repeated casts of the same tensor, which autocast issues for each product."""
    same: dict[int, int] = {}
    casts: dict[object, Kernel] = {}
    for kernel in kernels:
        reads = tuple(use._replace(storage=same.get(use.storage, use.storage)) for use in kernel.reads)
        first = casts.setdefault((reads, kernel.phase, kernel.bytes), kernel) if kernel.name == "_to_copy" else kernel
        if first is kernel:
            yield replace(kernel, reads=reads)
        else:
            same |= {use.storage: of_first.storage for use, of_first in zip(kernel.writes, first.writes, strict=True)}


def _grouped(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """Groups of kernels that become one. A fusible kernel's level is above those of the products that it depends on: if
    two kernels have one level and one reads the other's result, no product lies between them."""
    maker: dict[int, int] = {}
    levels: list[int] = []
    group: list[int] = []
    for number, kernel in enumerate(kernels):
        sources = [maker[use.storage] for use in kernel.reads if use.storage in maker]
        near = [source for source in sources if kernels[source].phase == kernel.phase]
        steps = [levels[s] + (kernel.fusible and not kernels[s].fusible) for s in near]
        levels.append(max(steps, default=0))
        group.append(number)
        for source in near if kernel.fusible else ():
            if kernels[source].fusible and levels[source] == levels[number]:
                group[_root(group, number)] = _root(group, source)
        for use in kernel.writes:
            maker[use.storage] = number
    found: dict[int, list[Kernel]] = {}
    for number, kernel in enumerate(kernels):
        found.setdefault(_root(group, number), []).append(kernel)
    return iter(found.values())


def _root(group: list[int], number: int) -> int:
    while group[number] != number:
        number = group[number]
    return number


def _moved(groups: Sequence[list[Kernel]]) -> tuple[float, int, float]:
    """Bytes moved by kernels without products, the number of their launches, and bytes kept for the backward pass."""
    inside = [{use.storage for kernel in group for use in kernel.writes} for group in groups]
    outer = [_by_storage(use for kernel in group for use in kernel.reads if use.storage not in own)
             for group, own in zip(groups, inside, strict=True)]  # fmt: skip
    maker = {storage: number for number, own in enumerate(inside) for storage in own}
    asked: dict[int, int] = {}
    kept: dict[int, int] = {}
    moved, launches = 0.0, 0
    for number, group in enumerate(groups):
        reads = dict(outer[number])
        for storage, size in outer[number].items():
            source = maker.get(storage)
            if source is None or source == number:
                continue
            again = sum(outer[source].values())
            if group[0].phase != groups[source][0].phase and groups[source][0].fusible and again <= size:
                del reads[storage]
                reads |= outer[source]  # recomputed rather than kept
            else:
                asked[storage] = size
        if group[0].phase == "backward":
            made_before = (s for s in reads if s in maker and groups[maker[s]][0].phase == "forward")
            kept |= {storage: reads[storage] for storage in made_before}
        if group[0].flops:
            continue
        launches += 1 if group[0].fusible else sum(kernel.times for kernel in group)
        moved += sum(reads.values())
    # A result is written if another group reads it, or if nothing in the trace reads it.
    read = {storage for found in outer for storage in found}
    within = {use.storage for group in groups for kernel in group for use in kernel.reads}
    for group in groups:
        if group[0].flops:
            continue
        for storage, size in _by_storage(use for kernel in group for use in kernel.writes).items():
            if storage in asked or (storage not in read and storage not in within):
                moved += size
    return moved, launches, sum(kept.values())


def _by_storage(uses: Iterable[Use]) -> dict[int, int]:
    """Bytes of each storage that are used, each part counted once."""
    parts: dict[int, dict[int, int]] = {}
    sizes: dict[int, int] = {}
    for use in uses:
        found = parts.setdefault(use.storage, {})
        found[use.offset] = max(use.bytes, found.get(use.offset, 0))
        sizes[use.storage] = use.size
    return {storage: min(sum(found.values()), sizes[storage]) for storage, found in parts.items()}
