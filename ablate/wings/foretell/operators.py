"""Operators that a program runs, counted on tensors without data: kernels, bytes they move, and FLOPs of products.

`Operators` records each operation as it is issued; `fusion` estimates how torch.compile would fuse them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from zoo.kernels.compiling import Trace, traced_for

Phase = Literal["forward", "backward", "update"]

FREE = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "detach",
    "lift_fresh",
    "_unsafe_view",
    "promote_types",
}
"""Operations that run no kernel, in addition to those that return views."""
FUSIBLE = {
    *("_to_copy", "clone", "copy_", "cat", "stack", "fill_", "zero_", "zeros", "zeros_like", "new_zeros", "ones_like"),
    *("full", "full_like", "arange", "scalar_tensor", "ones", "new_full", "mean", "sum", "amax", "var", "logsumexp"),
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_forward"),
    *("nll_loss_backward", "native_layer_norm", "gather", "embedding", "index", "slice_backward", "select_backward"),
    *("constant_pad_nd", "silu", "silu_backward", "gelu", "gelu_backward", "linalg_vector_norm"),
    *("where", "triu", "tril"),
}
"""Operations that torch.compile fuses, in addition to those that torch tags as pointwise."""
STATE = {"zeros_like", "zeros", "scalar_tensor"}
"""Operations that only the first step of an optimizer runs."""
TOGETHER = {"linalg_vector_norm", "mul_", "add_"}
"""Operations that an update runs on all its tensors at once on a GPU, and one by one elsewhere."""
UNROLLED = 8
"""Maximum number of terms of a sum that torch.compile unrolls into elementwise operations."""
CHUNK = 32
"""Approximate number of tensors per kernel of a fused optimizer, which has room for that many addresses."""


class Use(NamedTuple):
    """Bytes that a kernel reads or writes of a storage of `size` bytes, from element `offset` on."""

    storage: int
    offset: int
    bytes: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """One operation. times: number of launches."""

    name: str
    phase: Phase
    reads: tuple[Use, ...]
    writes: tuple[Use, ...]
    flops: float = 0.0
    fusible: bool = False
    times: int = 1

    @property
    def bytes(self) -> int:
        return sum(use.bytes for use in (*self.reads, *self.writes))


@dataclass(frozen=True)
class Work:
    """Work of a program on a device. product_bytes: moved by matrix products and attention; other_bytes: by the rest.
    kept_bytes: estimate of the bytes that the forward pass keeps for the backward pass; None without an estimate."""

    flops: float
    product_bytes: float
    other_bytes: float
    launches: int
    kept_bytes: float | None = None

    @property
    def bytes(self) -> float:
        return self.product_bytes + self.other_bytes


class Operators(TorchDispatchMode):
    """Lists the kernels of the operations inside the block, without views. The caller sets `phase`; operations of a
    backward pass are recognised."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[Kernel] = []
        self.phase: Phase = "forward"
        self._kept: dict[int, Any] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        settings = kwargs or {}
        out = operation(*args, **settings)
        packet = operation.overloadpacket
        name = packet.__name__
        returned = [each.alias_info for each in operation._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returned)
        if operation.namespace != "prim" and name not in FREE and not is_view:
            counted = flop_registry.get(packet)
            flops = float(counted(*args, **settings, out_val=out)) if counted else 0.0
            if name == "_grouped_mm" and not counted:
                # products of experts: of (M, in) by (E, in, out), or, for the weight's gradient, of (in, M) by (M, out)
                flops = 2.0 * args[0].numel() * args[1].shape[-1]
            given = [x for x in tree_leaves((args, settings)) if isinstance(x, Tensor)]
            made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            listed = max((len(x) for x in args if isinstance(x, list | tuple)), default=0)
            times = -(-listed // CHUNK) if name.startswith(("_fused", "_foreach")) else 1
            fusible = (
                not flops
                and (name in FUSIBLE or torch.Tag.pointwise in operation.tags)
                and not _across_rows(name, args)
            )
            if name.startswith(("_fused", "_foreach")):
                made = made or given
            if name == "index_put":
                given = given[1:]  # it adds to its own zeros
            self.note(name, given, made, flops, fusible, times)
        return out

    def note(
        self, name: str, given: Iterable[Tensor], made: Iterable[Tensor], flops: float = 0.0, fusible: bool = False,
        times: int = 1,
    ) -> None:  # fmt: skip
        """Add a kernel that reads `given` and writes `made`."""
        backward = torch._C._current_autograd_node() is not None
        if self.phase == "update" and name in STATE:
            return
        phase: Phase = "backward" if backward and self.phase == "forward" else self.phase
        self.kernels.append(Kernel(name, phase, self._uses(given), self._uses(made), flops, fusible, max(1, times)))

    def _uses(self, tensors: Iterable[Tensor]) -> tuple[Use, ...]:
        """Part of its storage that each tensor uses; broadcast elements count once."""
        found = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._kept[storage._cdata] = storage  # kept alive, or another would get its address
            size = min(tensor.numel() * tensor.element_size(), storage.nbytes())
            found.append(Use(storage._cdata, int(tensor.storage_offset()), size, storage.nbytes()))
        return tuple(dict.fromkeys(found))


def _across_rows(name: str, args: Sequence[Any]) -> bool:
    """Whether a sum adds up whole rows, which takes a separate kernel."""
    if name not in ("sum", "mean") or len(args) < 2 or not isinstance(args[1], list | tuple):
        return False
    axes = {axis % args[0].dim() for axis in args[1]} if args[0].dim() else set()
    added = math.prod(args[0].shape[axis] for axis in axes)
    return added > UNROLLED and args[0].dim() - 1 not in axes


class FusedNorm(torch.autograd.Function):
    """Stand-in for torch's fused RMSNorm, which elsewhere is six operations: one kernel forward, two backward, of which
    the second is for the gain."""

    @staticmethod
    def forward(ctx: Any, operators: Operators, x: Tensor, gain: Tensor | None) -> Tensor:
        out, ctx.operators = torch.empty_like(x), operators
        read = [x] if gain is None else [x, gain]
        ctx.save_for_backward(*read)
        operators.note("rms_norm", read, [out], fusible=True)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *rest = ctx.saved_tensors
        of_x = torch.empty_like(x)
        of_gain: list[Tensor] = [torch.empty_like(gain) for gain in rest]
        ctx.operators.note("rms_norm_backward", [gradient, x, *rest], [of_x], fusible=True)
        if of_gain:
            ctx.operators.note("rms_norm_backward_gain", [gradient, x], of_gain)
        return None, of_x, of_gain[0] if of_gain else None


class FusedAttention(torch.autograd.Function):
    """Stand-in for a fused attention kernel. QKᵀ and PV are two products forward, and five backward, where scores are
    computed again."""

    @staticmethod
    def forward(ctx: Any, operators: Operators, q: Tensor, k: Tensor, v: Tensor, share: float) -> Tensor:
        batch, heads, length, _ = q.shape
        out = v.new_empty(batch, length, heads, v.shape[-1]).transpose(1, 2)  # the layout in which kernels write it
        ctx.operators = operators
        scores = share * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        ctx.products = 2 * scores * q.shape[3], 2 * scores * v.shape[3]
        ctx.save_for_backward(q, k, v, out)
        operators.note("attention", [q, k, v], [out], sum(ctx.products))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out = ctx.saved_tensors
        found = [torch.empty_like(x) for x in (q, k, v)]
        by_query, by_value = ctx.products
        ctx.operators.note("attention_backward", [gradient, q, k, v, out], found, 3 * by_query + 2 * by_value, times=3)
        return None, *found, None


@contextmanager
def counted(*, compiled: bool) -> Iterator[Operators]:
    """List the kernels that a GPU would run inside the block."""
    operators = Operators()
    trace = Trace("cuda", compiled, partial(FusedAttention.apply, operators), partial(FusedNorm.apply, operators))
    with operators, traced_for(trace):
        yield operators


def as_issued(kernels: Sequence[Kernel]) -> Work:
    """Work of kernels that run one by one, as issued."""
    heavy = [each.bytes for each in kernels if each.flops]
    light = [each.bytes for each in kernels if not each.flops]
    together = Counter(each.name for each in kernels if each.phase == "update" and each.name in TOGETHER)
    fewer = sum(count - -(-count // CHUNK) for count in together.values())
    launches = sum(each.times for each in kernels) - fewer
    return Work(sum(each.flops for each in kernels), sum(heavy), sum(light), launches)
