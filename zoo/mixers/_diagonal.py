"""Scan of a state in which every element has its own decay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.mixers._scan import STATE, ScanChunks, ScanCost, check_shape


@dataclass(frozen=True)
class DiagonalCost(ScanCost):
    """FLOPs of `diagonal_scan`, which computes the recurrence as written."""

    def computed(self, length: int) -> float:
        return self.token * length


def diagonal_scan(
    c: Tensor, b: Tensor, x: Tensor, decay: Tensor, chunk: int, cache: LayerCache | None = None, name: str = STATE
) -> Tensor:
    """y_t = S_t c_t, S_t = exp(g_t) ⊙ S_{t−1} + x_t b_tᵀ, from the cached state or zero.

    c, b: (B, T, N), x: (B, T, I), g ≤ 0: (B, T, I, N) → (B, T, I). Computed in float32 or wider. name: of the
    state in the cache.

    Matrix products cannot apply a decay per element of the state. So all chunks step through their tokens in parallel,
    in C steps; T/C more steps carry states from chunk to chunk.
    """
    check_shape("b", b, c.shape, "(B, T, N), as c")
    check_shape("decay", decay, (*x.shape, c.shape[-1]), "(B, T, I, N)")
    kind = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        c, b, x, decay = (part.to(kind) for part in (c, b, x, decay))
        states = diagonal_states(x[..., None] @ b[..., None, :], decay, chunk, cache, name)
        out: Tensor = (states @ c[..., None])[..., 0]
    return out


def diagonal_states(
    added: Tensor, decay: Tensor, chunk: int, cache: LayerCache | None = None, name: str = STATE
) -> Tensor:
    """S_t = exp(g_t) ⊙ S_{t−1} + added_t after every token, from the cached state or zero.

    added, g ≤ 0: (B, T, …), float32 or wider → the same shape. name: of the state in the cache.
    """
    states, shape = kept_by("a recurrent layer", cache, StateCache), added.shape[2:]
    first = states.read(name, added.dtype) if states is not None else None
    chunks = ScanChunks.of(added.shape[1], chunk)
    added, decay = (chunks.cut(part.flatten(2)) for part in (added, decay))  # (B, M, C, I·N)
    inside, faded = [added[:, :, 0]], decay.cumsum(2).exp()
    for new, factor in zip(added[:, :, 1:].unbind(2), decay[:, :, 1:].exp().unbind(2), strict=True):
        inside.append(factor * inside[-1] + new)
    own = torch.stack(inside, dim=2)  # the states if every chunk started from zero
    before = [torch.zeros_like(own[:, 0, 0]) if first is None else first.flatten(1)]
    for last, fading in zip(own[:, :-1, -1].unbind(1), faded[:, :-1, -1].unbind(1), strict=True):
        before.append(fading * before[-1] + last)
    out: Tensor = chunks.join(own + faded * torch.stack(before, dim=1)[:, :, None]).unflatten(-1, shape)
    if states is not None:
        states.write(name, out[:, -1])
    return out
