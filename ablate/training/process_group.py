"""The processes that train one run together: data parallelism.

Each has the weights and the state of the optimizer, and computes the gradients of its rows of every batch. Their sum
over the group is the gradient of the whole batch (see `ablate.training.accumulation`), so all processes take the same
step. Like DistributedDataParallel, arXiv:2006.15704, but without overlapping sums with the backward pass, and with sums
in place of means: rows with fewer scored targets weigh less.
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

from store import AblateError

BUCKET_BYTES = 32 * 2**20
"""Bytes of gradients that are summed at a time."""
PATIENCE = timedelta(minutes=30)
"""Longest wait of a process for the others: meanwhile rank 0 may compile, validate or save."""


class ProcessGroupError(AblateError):
    """The run cannot be trained by this process group."""


@dataclass(eq=False)
class ProcessGroup:
    """A group of `size` processes, of which this is number `rank`."""

    rank: int = 0
    size: int = 1
    _agreed: bool = False
    """Whether all are known to have gradients of the same shapes."""

    def share(self, rows: int) -> slice:
        """This process's rows of a batch. Raises ProcessGroupError if `rows` cannot be divided evenly."""
        if rows % self.size:
            reason = f"a batch of {rows} rows cannot be split evenly across {self.size} devices"
            raise ProcessGroupError(f"{reason}: set --devices to a divisor of {rows}")
        own = rows // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace these tensors, of one dtype, by their sums over the group. Raises ProcessGroupError."""
        if self.size == 1:
            return
        if not self._agreed:
            # Sums over different weights would be silently wrong. Checked only once, since the check takes time.
            shapes = [tuple(tensor.shape) for tensor in tensors]
            found: list[object] = [None] * self.size
            dist.all_gather_object(found, shapes)
            if any(each != shapes for each in found):
                raise ProcessGroupError("some weights have gradients on only some of the devices: train on one device")
            self._agreed = True
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            dist.all_reduce(flat)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def broadcast_from_rank0(self, said: bool) -> bool:
        """Broadcast a value from rank 0 between hosts, without waiting for a device."""
        answer = torch.tensor([float(said)])
        dist.broadcast(answer, 0)
        return bool(answer.item())


ALONE = ProcessGroup()


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has only a shard of it (torch's DTensor, which is slow to import)."""
    return hasattr(tensor, "full_tensor")


def full_tensor_of(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, a collective operation; any other tensor unchanged."""
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
    """A process group on one machine, initialised through the file `meeting`, which no other group may use."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the machine's own name may not resolve
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield ProcessGroup(rank, size)
    finally:
        dist.destroy_process_group()
