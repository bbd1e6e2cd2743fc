"""A state that decays, erases what it has under one key and takes up an outer product of another, computed a chunk of
tokens at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.mixers._decayed import decayed_scores
from zoo.mixers._delta import inversion_flops, unit_inverse
from zoo.mixers._scan import ScanChunks, ScanCost, check_parts, check_shape, faded_read, faded_write, stepwise


@dataclass(frozen=True)
class DPLRCost(ScanCost):
    """FLOPs of `erasing_scan`."""

    @property
    def halves(self) -> bool:
        return True

    @property
    def token(self) -> float:
        """FLOPs per token of looking up, erasing, adding and reading."""
        return 8.0 * self.state

    def computed(self, length: int) -> float:
        chunks = ScanChunks.of(length, self.chunk)
        width, after = chunks.width, chunks.count - 1
        if width == 1:
            inside = chunks.count * (2 * self._scored(1) + self._mixed(1)) + after * self._mixed(1)
            return inside + 6.0 * self.state * after + 2.0 * self.state * max(0, after - 1)
        inside = 4 * (self._scored(width) + self._mixed(width)) + self.heads * inversion_flops(width)
        solved = 2.0 * self.heads * self.key_features * width**2 * after
        return chunks.count * inside + solved + 8.0 * self.state * width * after


def dplr_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    read: Tensor,
    erase: Tensor,
    decay: Tensor,
    chunk: int,
    cache: LayerCache | None = None,
) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = diag(a_t) S_{t−1} − e_t (r_tᵀ S_{t−1}) + k_t v_tᵀ, a = exp(g), from the state that the
    cache holds, or zero.

    q, k, read r, erase e and decay g ≤ 0: (B, H, T, n), v: (B, H, T, p) → (B, H, T, p). `chunk` is a power of two.

    Within a chunk the rows u_t = r_tᵀ S_{t−1} solve (I + A) U = K V + (r e^(c − g)) S, with S the state before it,
    c the decay summed up, A_ij = Σ r_i e_j exp(c_i − g_i − c_j) and K_ij the same of r and k, both for j < i. Taking
    g back costs no precision as long as it is bounded, as RWKV-7's is by e^(−1/2).
    """
    check_parts(q, k, v, None)
    for name, part in (("read", read), ("erase", erase), ("decay", decay)):
        check_shape(name, part, q.shape, "(B, H, T, n), as q")
    return stepwise(_one, _chunked, (q, k, read, erase, decay, v), chunk, cache)


def _one(
    q: Tensor, k: Tensor, read: Tensor, erase: Tensor, decay: Tensor, v: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence itself, for one token: all (B, H, 1, …)."""
    kept = decay.exp().transpose(-1, -2) * state
    state = kept - erase.transpose(-1, -2) @ (read @ state) + k.transpose(-1, -2) @ v
    return q @ state, state


def _chunked(
    q: Tensor,
    k: Tensor,
    read: Tensor,
    erase: Tensor,
    decay: Tensor,
    v: Tensor,
    state: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """All (B, H, N, C, …). → outputs, and the state after the last token where it is to be kept."""
    total, read = decay.cumsum(dim=-2), read * (-decay).exp()
    written, erased = decayed_scores(q, k, total) @ v, decayed_scores(q, erase, total)
    count, known = q.shape[2], int(state is None)
    looked = (read * total.exp())[:, :, known:] if known < count else None
    found: Tensor | None = None
    if q.shape[-2] > 1:  # a token alone in its chunk finds nothing there
        inverse = unit_inverse(decayed_scores(read, erase, total).tril(-1))
        found = inverse @ (decayed_scores(read, k, total).tril(-1) @ v)
        looked = looked if looked is None else inverse[:, :, known:] @ looked
    parts: list[Tensor] = []
    for i in range(count):
        c, out = total[:, :, i], written[:, :, i]
        gone = None if found is None else found[:, :, i]
        if state is not None and looked is not None:
            there = looked[:, :, i - known] @ state
            gone = there if gone is None else gone + there
            out = out + faded_read(q[:, :, i], c.exp(), state)
        if gone is not None:
            out = out - erased[:, :, i] @ gone
        parts.append(out)
        if keep or i + 1 < count:
            last = c[..., -1:, :]
            left = (last - c).exp()
            added = faded_write(k[:, :, i], left, v[:, :, i])
            if gone is not None:
                added = added - faded_write(erase[:, :, i], left, gone)
            state = added if state is None else last.exp().transpose(-1, -2) * state + added
    return torch.stack(parts, dim=2), state if keep else None
