"""Chunked scan with a diagonal-plus-low-rank (DPLR) transition: a state that decays, erases along one key and adds an
outer product with another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.mixers._decay import decayed_scores
from zoo.mixers._delta import inversion_flops, unit_inverse
from zoo.mixers._scan import (
    STATE,
    ScanChunks,
    ScanCost,
    check_parts,
    check_shape,
    decayed_read,
    decayed_write,
    stepwise,
)


@dataclass(frozen=True)
class DPLRCost(ScanCost):
    """FLOPs of `dplr_scan`."""

    @property
    def halves(self) -> bool:
        return True

    @property
    def token(self) -> float:
        """FLOPs per token of the lookup, the erasure, the addition and the read."""
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


def dplr_scan(  # noqa: PLR0913, PLR0917 (the tensors of its formula, and how to run it)
    q: Tensor,
    k: Tensor,
    v: Tensor,
    read: Tensor,
    erase: Tensor,
    decay: Tensor,
    chunk: int,
    cache: LayerCache | None = None,
    name: str = STATE,
) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = diag(a_t) S_{t−1} − e_t (r_tᵀ S_{t−1}) + k_t v_tᵀ, a = exp(g), from the cached state or
    zero.

    q, k, read r, erase e and decay g ≤ 0: (B, H, T, n), v: (B, H, T, p) → (B, H, T, p). `chunk` is a power of two.
    name: of the state in the cache.

    Within a chunk, let c_i be the decay summed up to token i, S the state before the chunk, and ⟨x, y⟩_ij =
    Σ_f x_if y_jf exp(c_if − c_jf). The lookups u_t = r_tᵀ S_{t−1} solve (1), with r′ = e^(−g) ⊙ r and j < i, since they
    precede the token's own decay; (2) gives the outputs, with j ≤ i, and (3) the next S:

    (1) (I + ⟨R′, E⟩) U = ⟨R′, K⟩ V + (e^c ⊙ R′) S
    (2) O = ⟨Q, K⟩ V − ⟨Q, E⟩ U + (e^c ⊙ Q) S
    (3) S ← e^{c_C} S + (exp(c_C − c) ⊙ K)ᵀ V − (exp(c_C − c) ⊙ E)ᵀ U

    The factor e^(−g) costs no precision while g is bounded, as in RWKV-7, where −g ≤ e^(−1/2).
    """
    check_parts(q, k, v, None)
    for what, part in (("read", read), ("erase", erase), ("decay", decay)):
        check_shape(what, part, q.shape, "(B, H, T, n), as q")
    chunks = ScanChunks.of(v.shape[2], chunk)
    return stepwise(_one, _chunked, (q, k, read, erase, decay, v), chunks, cache, name=name)


def _one(
    q: Tensor, k: Tensor, read: Tensor, erase: Tensor, decay: Tensor, v: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of the recurrence. All (B, H, 1, …), state: (B, H, n, p)."""
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
    """All (B, H, N, C, …) → outputs, and the state after the last token if `keep`, else None."""
    # For all chunks at once: the terms that do not depend on the state. known: 1 if the first chunk starts from zero.
    total, read = decay.cumsum(dim=-2), read * (-decay).exp()  # c and R′: (B, H, N, C, n)
    written, erased = decayed_scores(q, k, total) @ v, decayed_scores(q, erase, total)  # (2) ⟨Q, K⟩ V, ⟨Q, E⟩
    count, known = q.shape[2], int(state is None)
    looked = (read * total.exp())[:, :, known:] if known < count else None  # (1) e^c ⊙ R′
    found: Tensor | None = None
    if q.shape[-2] > 1:  # for a single token, ⟨R′, E⟩ and ⟨R′, K⟩ are 0
        inverse = unit_inverse(decayed_scores(read, erase, total).tril(-1))  # (1) (B, H, N, C, C)
        found = inverse @ (decayed_scores(read, k, total).tril(-1) @ v)
        looked = looked if looked is None else inverse[:, :, known:] @ looked
    parts: list[Tensor] = []
    # Chunk by chunk: the terms that do.
    for i in range(count):
        c, out = total[:, :, i], written[:, :, i]
        gone = None if found is None else found[:, :, i]
        if state is not None and looked is not None:
            there = looked[:, :, i - known] @ state
            gone = there if gone is None else gone + there  # (1) U: (B, H, C, p)
            out = out + decayed_read(q[:, :, i], c.exp(), state)  # (2) (e^c ⊙ Q) S
        if gone is not None:
            out = out - erased[:, :, i] @ gone  # (2)
        parts.append(out)
        if keep or i + 1 < count:
            last = c[..., -1:, :]
            left = (last - c).exp()
            added = decayed_write(k[:, :, i], left, v[:, :, i])  # (3)
            if gone is not None:
                added = added - decayed_write(erase[:, :, i], left, gone)
            state = added if state is None else last.exp().transpose(-1, -2) * state + added
    return torch.stack(parts, dim=2), state if keep else None
