"""Estimate of torch.compile's fused kernels, from the kernels that `ablate.wings.foretell.operators` listed.

Elementwise and row-wise operations become one kernel if one reads another's result and no matrix product lies between;
results that only they read are never written. The backward pass recomputes such a result if reading its inputs is
cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ablate.wings.foretell.operators import Kernel, Use, Work, as_issued


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
