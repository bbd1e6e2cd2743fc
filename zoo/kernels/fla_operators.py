"""flash-linear-attention's operators as custom operators of torch: a compiled step stays one graph, and a step on fake
tensors knows their shapes.

The backward pass recomputes them from their inputs, because what they save for it has no public interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, fallthrough_kernel, register_autograd, register_fake

_GIVEN = "Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? strength, Tensor? state"
_LIBRARY = Library("ablate_fla", "DEF")
_LIBRARY.define(f"scan({_GIVEN}, bool keep) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
_LIBRARY.define(f"gradients(Tensor gradient, {_GIVEN}) -> Tensor[]", tags=torch.Tag.pt2_compliant_tag)
NAMES = {
    (False, False): "simple_gla",
    (True, False): "gla",
    (False, True): "gated_delta_rule",
    (True, True): "kda",
}
"""Kernel of fla, by whether each key feature has its own decay, and whether there is a strength."""


def _compute(parts: Sequence[Any], state: Tensor | None, keep: bool) -> tuple[Tensor, Tensor | None]:
    """parts: q, k, v, decay and strength or None, all (B, T, H, …), state: (B, H, n, p) → output, of v's shape, and the
    final state if `keep`."""
    q, k, v, decay, strength = parts
    name = NAMES[decay.dim() == 4, strength is not None]
    operator = getattr(import_module(f"fla.ops.{name}"), f"chunk_{name}")
    delta = {} if strength is None else {"beta": strength}
    # The forward pass runs inside autocast, the recomputation outside it: off, so that both compute the same.
    with torch.autocast(q.device.type, enabled=False):
        out, after = operator(q, k, v, g=decay, **delta, scale=1.0, initial_state=state, output_final_state=keep)
    return out, after


def _scan(*given: Any) -> tuple[Tensor, Tensor]:
    *parts, state, keep = given
    out, after = _compute(parts, state, keep)
    return out.contiguous(), out.new_empty(0) if after is None else after


def _gradients(gradient: Tensor, *given: Any) -> list[Tensor]:
    """Gradients of q, k, v, decay, and of the strength if there is one."""
    *parts, state = given
    with torch.enable_grad():
        parts = [None if x is None else x.detach().requires_grad_() for x in parts]
        out, _ = _compute(parts, state, False)
        found = torch.autograd.grad(out, [x for x in parts if x is not None], gradient)
    return [each.contiguous() for each in found]


def _empty_scan(*given: Any) -> tuple[Tensor, Tensor]:
    _, k, v, decay, _, _, keep = given
    batch, _, heads, features = v.shape
    return v.new_empty(v.shape), decay.new_empty(batch, heads, k.shape[-1], features) if keep else v.new_empty(0)


def _empty_gradients(gradient: Tensor, *given: Tensor | None) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in given[:5] if x is not None]


def _remember(ctx: Any, inputs: Sequence[Any], output: object) -> None:
    ctx.save_for_backward(*inputs[:6])


def _backward(ctx: Any, gradient: Tensor, _: object) -> tuple[Tensor | None, ...]:
    found = torch.ops.ablate_fla.gradients(gradient, *ctx.saved_tensors)
    return (*found, *[None] * (7 - len(found)))


_LIBRARY.impl("scan", _scan, "CompositeExplicitAutograd")
_LIBRARY.impl("gradients", _gradients, "CompositeExplicitAutograd")
# Without a fallthrough, autograd is off inside an operator of torch, and `_gradients` needs it.
_LIBRARY.impl("gradients", fallthrough_kernel, "Autograd")
register_fake("ablate_fla::scan", _empty_scan, lib=_LIBRARY)
register_fake("ablate_fla::gradients", _empty_gradients, lib=_LIBRARY)
register_autograd("ablate_fla::scan", _backward, setup_context=_remember, lib=_LIBRARY)
