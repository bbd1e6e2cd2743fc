"""The processes that train one run together: data parallelism.

Each has the weights and the state of the optimizer, and computes the gradients of its rows of every batch. Their sum
over the group is the gradient of the whole batch (see `ablate.training.batch`), so all processes take the same
step. Like DistributedDataParallel, arXiv:2006.15704, with sums in place of means, since rows with fewer scored targets
weigh less, and after the backward pass: a process that runs out of memory starts its pass over with fewer rows, and a
compiled pass, which is one graph, has all gradients at its end.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from ablate.training.batch import ProcessGroup, Stretches
from ablate.training.optimizers import StateDict, Updates
from store import AblateError
from zoo.model import Decoder

BUCKET_BYTES = 32 * 2**20
"""Bytes of gradients that are summed at a time."""
PATIENCE = timedelta(minutes=30)
"""Longest wait of a process for the others: meanwhile rank 0 may compile, validate or save."""


class ProcessGroupError(AblateError):
    """The run cannot be trained by this process group."""


@dataclass(eq=False)
class DataParallel(ProcessGroup):
    """A group of `size` processes, of which this is number `rank`."""

    rank: int
    size: int
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
        tensors = [tensor for tensor in tensors if not isinstance(tensor, DTensor)]
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
def joined(meeting: Path, rank: int, size: int, device: str, *, shard: bool = False) -> Iterator[ProcessGroup]:
    """A process group on one machine, initialised through the file `meeting`, which no other group may use."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the machine's own name may not resolve
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Sharded(rank, size) if shard else DataParallel(rank, size)
    finally:
        dist.destroy_process_group()


# Weights, gradients and the state of the optimizer, sharded over the processes of a group.
#
# FSDP2 (`torch.distributed.fsdp.fully_shard`; Zhao et al. 2023, arXiv:2304.11277): each process has a shard of every
# weight. A block gathers its weights to compute, and frees them afterwards; one reduce-scatter sums and shards
# gradients, so that the optimizer's steps are those of one process. Weights are gathered in float32: FSDP2 would cast
# all of a module's, and a norm whose gain is bfloat16 has no fused kernel.
#
# Rank 0 validates and saves with the whole weights, which it has in memory only then.


class Sharded(DataParallel):
    """A group that trains a sharded model. `model` has this process's shards and is trained, `full` is the model as
    given. During training `full` has no weights in memory, except at rank 0 between `_gather` and `_release`."""

    full: Decoder
    model: Decoder
    _state: ShardedState
    _saves = False
    """Whether the state is gathered and saved after this step."""

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def trained(self, model: Decoder) -> Decoder:
        self.full, self.model = model, copy.deepcopy(model)
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.size,))
        for stack in (self.model, self.model.encoder):
            for block in stack.blocks if stack is not None else ():
                fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                # sum gradients, without averaging: see the top of this file
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction
        register_fsdp_forward_method(self.model, "loss")
        return self.model.train()

    def state_of(self, optimizer: Updates) -> ShardedState:
        self._state = ShardedState(optimizer)
        return self._state

    @torch.no_grad()
    def _spread(self) -> None:
        """Copy this process's shards from the whole model, which is the same in all processes."""
        for part, full in self._pairs():
            part.to_local().copy_(distribute_tensor(full, part.device_mesh, part.placements).to_local())
        self._copy_buffers(self.full, self.model)

    def together(self, stretches: Stretches, done: int, steps: int, scored: Callable[[int], bool]) -> Stretches:
        """The stretches, with shards gathered in all processes after the same steps, and for good after the last."""
        self._spread()
        with closing(stretches):
            if done < steps:
                self._release()
            for stretch in stretches:
                done = stretch[-1].step
                if self._saves or scored(done):
                    self._gather(with_state=self._saves)
                yield stretch
                self._saves = False
                if done < steps:
                    self._release()

    def decides_to_save(self, is_due: Callable[[], bool]) -> bool:
        """Broadcast the decision of rank 0 between hosts, without waiting for a device."""
        answer = torch.tensor([float(is_due())])
        dist.broadcast(answer, 0)
        self._saves = bool(answer.item())
        return self._saves

    def saves(self, is_due: bool) -> bool:
        return self._saves

    @torch.no_grad()
    def _gather(self, with_state: bool) -> None:
        """Gather the weights into rank 0's whole model, and the optimizer's state if asked: a collective operation."""
        if with_state:
            self._state.gather()
        for part, full in self._pairs():
            found, storage = part.full_tensor(), full.untyped_storage()
            if self.rank == 0:
                end = int(full.storage_offset()) * full.itemsize + found.nbytes
                storage.resize_(max(storage.nbytes(), end))  # `_release` freed it
                full.copy_(found)
        self._copy_buffers(self.model, self.full)

    def _release(self) -> None:
        """Free the memory of the whole model's weights, which stay the same parameters, tied ones tied."""
        for _, full in self._pairs():
            full.untyped_storage().resize_(0)

    def _copy_buffers(self, source: Decoder, target: Decoder) -> None:
        for found, into in zip(source.buffers(), target.buffers(), strict=True):
            into.copy_(found)

    def _pairs(self) -> Iterator[tuple[DTensor, Tensor]]:
        for part, full in zip(self.model.parameters(), self.full.parameters(), strict=True):
            if not isinstance(part.data, DTensor):
                raise ProcessGroupError("a weight is not sharded (no DTensor)")
            yield part.data, full.data


class ShardedState:
    """The state of an optimizer of sharded weights, saved and loaded unsharded."""

    def __init__(self, own: Updates) -> None:
        self.own = own
        self._whole: StateDict = {}

    def gather(self) -> None:
        """Gather the state, for `state_dict`: a collective operation."""
        state = self.own.state_dict()
        self._whole = {
            **state,
            "state": {
                at: {
                    name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in found.items()
                }
                for at, found in state["state"].items()
            },
        }

    def state_dict(self) -> StateDict:
        """The state at the last `gather`."""
        return self._whole

    def load_state_dict(self, state_dict: StateDict) -> None:
        parameters = [parameter for group in self.own.param_groups for parameter in group["params"]]
        parts = {
            at: {name: _part_like(value, parameters[at]) for name, value in found.items()}
            for at, found in state_dict["state"].items()
        }
        self.own.load_state_dict({**state_dict, "state": parts})


def _part_like(value: Any, parameter: Tensor) -> Any:
    """A tensor of a weight's shape, sharded like the weight; any other value unchanged."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape or not isinstance(parameter.data, DTensor):
        return value
    return distribute_tensor(value.to(parameter.device), parameter.data.device_mesh, parameter.data.placements)
