"""Weights, gradients and the state of the optimizer, sharded over the processes of a group.

FSDP2 (`torch.distributed.fsdp.fully_shard`; Zhao et al. 2023, arXiv:2304.11277): each process has a shard of every
weight. A block gathers its weights to compute, and frees them afterwards; one reduce-scatter sums and shards gradients,
so that the optimizer's steps are those of one process.

Each process also keeps the whole weights, with which rank 0 validates and saves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

import zoo
from ablate.training.optimizers import Group, StateDict, Updates
from ablate.training.process_group import ProcessGroup, ProcessGroupError, full_tensor_of


class Sharded:
    """A sharded model. `model` has this process's shards and is trained, `whole` is the model as given."""

    def __init__(self, whole: zoo.Decoder, device: str, group: ProcessGroup) -> None:
        self.whole, self.model = whole, copy.deepcopy(whole)
        mesh = init_device_mesh(device, (group.size,))
        for stack in (self.model, self.model.encoder):
            for block in stack.blocks if stack is not None else ():
                fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                # sum gradients, without averaging: see `ablate.training.process_group`
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction
        register_fsdp_forward_method(self.model, "loss")
        self.model.train()

    @torch.no_grad()
    def spread(self) -> None:
        """Copy this process's shards from the whole model, which is the same in all processes."""
        for part, whole in self._pairs():
            part.to_local().copy_(distribute_tensor(whole, part.device_mesh, part.placements).to_local())
        self._copy_buffers(self.whole, self.model)

    def updates(self, own: Updates) -> ShardedUpdates:
        """The optimizer of the shards, whose state is gathered with them."""
        self._updates = ShardedUpdates(own)
        return self._updates

    @torch.no_grad()
    def gather(self, with_updates: bool) -> None:
        """Gather the weights into the whole model, and the optimizer's state if asked: a collective operation."""
        if with_updates:
            self._updates.gather()
        for part, whole in self._pairs():
            whole.copy_(part.full_tensor())
        self._copy_buffers(self.model, self.whole)

    def _copy_buffers(self, source: zoo.Decoder, target: zoo.Decoder) -> None:
        for found, into in zip(source.buffers(), target.buffers(), strict=True):
            into.copy_(found)

    def _pairs(self) -> Iterator[tuple[DTensor, Tensor]]:
        for part, whole in zip(self.model.parameters(), self.whole.parameters(), strict=True):
            if not isinstance(part.data, DTensor):
                raise ProcessGroupError("a weight is not sharded (no DTensor)")
            yield part.data, whole.data


class ShardedUpdates:
    """An optimizer of sharded weights, whose state is saved and loaded unsharded."""

    def __init__(self, own: Updates) -> None:
        self.own = own
        self._whole: StateDict = {}

    @property
    def param_groups(self) -> list[Group]:
        return self.own.param_groups

    def step(self) -> Any:
        return self.own.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.own.zero_grad(set_to_none)

    def gather(self) -> None:
        """Gather the state, for `state_dict`: a collective operation."""
        state = self.own.state_dict()
        self._whole = {
            **state,
            "state": {
                at: {name: full_tensor_of(value) for name, value in found.items()}
                for at, found in state["state"].items()
            },
        }

    def state_dict(self) -> StateDict:
        """The state at the last `gather`."""
        return self._whole

    def load_state_dict(self, state_dict: StateDict) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
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
