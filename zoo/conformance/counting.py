"""FLOPs as torch counts them, independently of declared costs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import zoo
from zoo.attending import plain
from zoo.attending.visible import Scoring, Visible
from zoo.conv import ShortConv
from zoo.features.chunks import Chunking
from zoo.ffns._experts import Experts
from zoo.init import ExpertLinear
from zoo.model import Decoder


class FlopCount(TorchDispatchMode):
    """Counter of FLOPs. total: matrix products, and short convolutions, which torch runs as elementwise operations. If
    tokens can be routed to experts without an FFN, `total` assumes a balanced load, as declared costs do.

    The formulas are torch's. Its `FlopCounterMode` also tracks which module runs, which takes twice as long.
    """

    def __init__(self, passes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passes, self.multiplied, self.convolved, self.unbalanced = passes, 0, 0, 0.0

    @property
    def total(self) -> float:
        return self.multiplied + self.passes * (self.convolved + self.unbalanced)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func.overloadpacket)
        if formula is None and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if func is torch.ops.aten.convolution_backward.default:
            # As many as in the forward pass for each gradient requested. torch's formula assumes that every channel of
            # a grouped convolution reads all others.
            gradient, _, weight, *_, wanted = args
            self.multiplied += sum(wanted[:2]) * 2 * gradient.numel() * weight[0].numel()
        elif formula is not None:
            self.multiplied += formula(*args, **kwargs, out_val=out)
        return out

    def balance(self, module: Experts, args: Any, out: Tensor) -> None:
        """Add the FLOPs of rows that are missing from a balanced load, or subtract those of excess rows."""
        chosen: Tensor = args[1]
        expected = module.share * chosen.numel()
        weights = sum(part.weight[0].numel() for part in module.modules() if isinstance(part, ExpertLinear))
        self.unbalanced += 2.0 * weights * (expected - int((chosen < module.up.experts).sum()))

    def convolve(self, module: ShortConv, args: Any, out: Tensor) -> None:
        self.convolved += 2 * out.numel() * module.weight.shape[1]


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an operation is composed of others, as `matmul` is. In inference mode, it is dispatched undivided."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@contextmanager
def counted(model: nn.Module, passes: int = 1) -> Iterator[FlopCount]:
    """Count FLOPs. passes: 1 for a forward pass; 3 with a backward pass, whose products are twice as many."""
    count = FlopCount(passes)
    hooks = [m.register_forward_hook(count.convolve) for m in model.modules() if isinstance(m, ShortConv)]
    mixtures = (m for m in model.modules() if isinstance(m, Experts) and m.beside)
    hooks += [m.register_forward_hook(count.balance) for m in mixtures]
    try:
        with count:
            yield count
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def expected_chunks(model: Decoder) -> Iterator[None]:
    """Give every text the declared number of chunks. They begin at its first tokens: only their number counts."""
    chunking = next((part for part in model.parts if isinstance(part, Chunking)), None)
    if chunking is None:
        yield
        return

    def begins(p: Tensor) -> Tensor:
        return (torch.arange(p.shape[1]) < chunking.spec.count(p.shape[1])).expand_as(p)

    with patch.object(chunking, "begins", begins):
        yield


@contextmanager
def fused_kernels_as_products() -> Iterator[None]:
    """Replace fused attention, which torch does not count on a CPU, by two products over whole score matrices."""
    with patch.object(F, "scaled_dot_product_attention", _attention):
        yield


def _attention(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    mask = settings["attn_mask"]
    if settings["is_causal"]:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * settings["scale"]
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return F.dropout(scores.softmax(dim=-1), settings["dropout_p"]) @ v


@contextmanager
def counted_as_seen(model: nn.Module) -> Iterator[Callable[[], float]]:
    """Yields a function that returns the FLOPs so far. In `attend`, only visible scores count."""
    computed, hidden = plain.attend, 0.0

    def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        nonlocal hidden
        shown = visible.mask().expand(q.shape[0], 1, q.shape[2], k.shape[2])  # (B, 1, T, S)
        hidden += 2.0 * q.shape[1] * (q.shape[3] + v.shape[3]) * int((~shown).sum())
        return computed(q, k, v, visible, scoring)

    with patch.object(plain, "attend", attend), zoo.attention_backend("plain"), counted(model) as count:
        yield lambda: count.total - hidden


def taken_by(modules: Mapping[int, nn.Module], model: nn.Module, run: Callable[[], object]) -> dict[int, list[float]]:
    """FLOPs of each call of these modules while `run` runs, counted as in `counted_as_seen`."""
    taken: dict[int, list[float]] = {key: [] for key in modules}
    with counted_as_seen(model) as total, ExitStack() as hooks:
        for key, module in modules.items():
            # The hook before a call appends minus the count so far; the hook after the call adds the new count.
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, of=taken[key]: of.append(-total())))
            hooks.enter_context(
                module.register_forward_hook(lambda *_, of=taken[key]: of.__setitem__(-1, of[-1] + total()))
            )
        run()
    return taken
