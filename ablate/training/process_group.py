"""The processes that train one run together: data parallelism.

Each has the weights and the state of the optimizer, and computes the gradients of its rows of every batch. These are
parts of the gradient of the whole (see `ablate.training.accumulation`), so that their sum over the group is it, and all
processes take the same step. As DistributedDataParallel, arXiv:2006.15704, without its overlap of sums with the
backward pass, and with sums where that has means: rows with fewer scored targets weigh less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from ablate.store import AblateError

BUCKET_BYTES = 32 * 2**20
"""Bytes of gradients that are summed at a time."""
PATIENCE = timedelta(minutes=30)
"""Time that one process waits for the others: the first compiles, validates and saves."""


class ProcessGroupError(AblateError):
    """The run cannot be trained by so many processes."""


@dataclass(eq=False)
class ProcessGroup:
    """This process is number `rank` of `size`."""

    rank: int = 0
    size: int = 1
    _agreed: bool = False
    """Whether all have gradients of the same weights."""

    def share(self, rows: int) -> slice:
        """Which rows of a batch are this process's. Raises ProcessGroupError."""
        if rows % self.size:
            raise ProcessGroupError(f"a batch of {rows} rows cannot be shared by {self.size} devices: choose a divisor")
        own = rows // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put the sums over the group in the place of these tensors, which have one dtype. Raises ProcessGroupError."""
        if self.size == 1:
            return
        if not self._agreed:
            # Sums over different weights would be wrong without a word. Asked once: waiting for the answer takes time.
            shapes = [tuple(tensor.shape) for tensor in tensors]
            found: list[object] = [None] * self.size
            dist.all_gather_object(found, shapes)
            if any(each != shapes for each in found):
                raise ProcessGroupError(
                    "some weights have gradients on one device and none on another: train on one device"
                )
            self._agreed = True
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            dist.all_reduce(flat)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def broadcast_from_rank0(self, said: bool) -> bool:
        """Broadcast a value from rank 0 between hosts, so that no device is waited for."""
        answer = torch.tensor([float(said)])
        dist.broadcast(answer, 0)
        return bool(answer.item())


ALONE = ProcessGroup()


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has a part of it (torch's DTensor, which is slow to import)."""
    return hasattr(tensor, "full_tensor")


def full_tensor_of(tensor: Tensor) -> Tensor:
    """Put together what is shared out; all processes have to, at once. Any other tensor as it is."""
    put_together: Callable[[], Tensor] = getattr(tensor, "full_tensor", lambda: tensor)
    return put_together()


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(each.nbytes for each in bucket) >= BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


@contextmanager
def joined(meeting: Path, rank: int, size: int, device: str) -> Iterator[ProcessGroup]:
    """A group whose processes meet through a file that nobody else uses, on one machine."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # where the machine's own name may resolve to nothing
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield ProcessGroup(rank, size)
    finally:
        dist.destroy_process_group()
