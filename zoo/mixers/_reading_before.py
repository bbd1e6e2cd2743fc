"""A state that decays, and that a token reads before it is changed by the token itself."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.mixers._decayed import decayed_scores
from zoo.mixers._scan import carry, faded_read, faded_write, stepwise


def scan_before(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, chunk: int, cache: LayerCache | None = None) -> Tensor:
    """o_t = S_{t−1}ᵀ q_t, S_t = diag(exp(g_t)) S_{t−1} + k_t v_tᵀ, from the state that the cache holds, or zero.

    q, k, decay g ≤ 0: (B, H, T, n), v: (B, H, T, p) → (B, H, T, p). `chunk` is a power of two. Costs what `scan` with
    channels does (`ScanCost`).
    """
    return stepwise(_one, _chunked, (q, k, decay, v), chunk, cache)


def _one(q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence itself, for one token: all (B, H, 1, …)."""
    return q @ state, decay.exp().transpose(-1, -2) * state + k.transpose(-1, -2) @ v


def _chunked(
    q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """All (B, H, N, C, …) → outputs, and the state after the last token where it is to be kept."""
    total = decay.cumsum(dim=-2)
    # Between token j and the state that token i reads lie the decays of j + 1 … i − 1. So a query is scored where the
    # token before it is, and the row of scores is moved back.
    ahead = F.pad(q, (0, 0, -1, 1))
    scores = F.pad(decayed_scores(ahead, k, total), (0, 0, 1, -1))
    out = scores @ v
    count = q.shape[2]
    left = count if keep else count - 1
    before = [] if state is None else [state]
    if left:
        last = total[..., -1:, :]
        added = faded_write(*(x[:, :, :left] for x in (k, (last - total).exp(), v)))
        fading = last[:, :, :left].exp().transpose(-1, -2)
        before += carry(added.unbind(2), fading.unbind(2), state)
    final = before.pop() if keep else None
    if before:
        skipped = count - len(before)  # without a state the first chunk has nothing before it to read
        faded = F.pad(total, (0, 0, 1, -1)).exp()[:, :, skipped:]
        read = faded_read(q[:, :, skipped:], faded, torch.stack(before, dim=2))
        out = out + F.pad(read, (0, 0, 0, 0, skipped, 0))
    return out, final
