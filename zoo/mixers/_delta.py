"""Chunked scans of the delta rule. Gated: a state that decays and adds the part of each value that it did not predict.

With a diagonal-plus-low-rank (DPLR) transition: a state that decays, erases along one key and adds an outer product
with another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.kernels.fla import can_scan
from zoo.mixers._decay import assembled, decayed_scores
from zoo.mixers._scan import (
    STATE,
    ScanChunks,
    ScanCost,
    by_group,
    check_parts,
    check_shape,
    decayed_read,
    decayed_write,
    scan_in_kernel,
    stepwise,
)


@dataclass(frozen=True)
class DeltaCost(ScanCost):
    """FLOPs of `delta_scan`, or of `product_scan` with `rank` delta-rule steps per token."""

    @property
    def halves(self) -> bool:
        return True

    @property
    def token(self) -> float:
        """FLOPs per token: a prediction and an update for each step, and one read."""
        return (4.0 * self.rank + 2.0) * self.state

    def computed(self, length: int) -> float:
        chunks = ScanChunks.of(length * self.rank, self.chunk)
        width, after = chunks.width, chunks.count - 1
        # q kᵀ, and its product with the corrections
        read = chunks.count * (self._scored(width) + self._mixed(width))
        carried = 6.0 * self.state * width * after
        if width == 1:
            return read + carried
        solved = read  # k kᵀ, and the inverse times values
        corrected = 2.0 * self.heads * self.key_features * width**2 * after
        return read + carried + solved + corrected + chunks.count * self.heads * inversion_flops(width)


def inversion_flops(width: int) -> float:
    """FLOPs of `unit_inverse`: two products of size b for each pair of blocks of b = 2, 4, … C/2."""
    return max(0.0, 2.0 * width * (width**2 - 4) / 3)


def delta_scan(  # noqa: PLR0913, PLR0917 (the tensors of its formula, and how to run it)
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor,
    chunk: int,
    cache: LayerCache | None = None,
    rank: int = 1,
    name: str = STATE,
) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = a_t S_{t−1} + β_t k_t (v_t − a_t S_{t−1}ᵀ k_t)ᵀ, a = exp(g), from the cached state or zero.

    q, k: (B, G, T, n), v: (B, H, T, p), strength β: (B, H, T) → (B, H, T, p). The decay g ≤ 0 is (B, H, T), or (B, H,
    T, n) with one number per key feature, a then being a diagonal matrix. The H/G heads of group i share its queries
    and keys. `chunk` is a power of two. Computed in float32 or wider, except by the kernels of `zoo.kernels.fla`, where
    these are in use. With a rank, T counts rows, `rank` per token: see `product_scan`. name: of the state in the cache.

    Within a chunk, let c_i be the decay summed up to token i, S the state before the chunk, and L strictly lower
    triangular. The corrections u_t = β_t (v_t − a_t S_{t−1}ᵀ k_t) solve (1); (2) gives the outputs, (3) the next S:

    (1) (I + L) U = β V − (β e^c ⊙ K) S, L_ij = β_i (k_i·k_j) exp(c_i − c_j)
    (2) O = (Q Kᵀ ⊙ exp(c_i − c_j)) U + (e^c ⊙ Q) S, with j ≤ i
    (3) S ← e^{c_C} S + (exp(c_C − c) ⊙ K)ᵀ U

    (Yang et al. 2024, arXiv:2406.06484, §3.2; arXiv:2412.06464, §3.3.)
    """
    check_parts(q, k, v, decay, strength)
    if can_scan(q, k, v):
        return scan_in_kernel(q, k, v, decay, strength, cache, name)
    decay = decay if decay.dim() == 4 else decay[..., None]
    of_heads = (by_group(x, q) for x in (v, decay, strength[..., None]))
    parts = (q[:, :, None], k[:, :, None], *of_heads)
    return stepwise(_delta_one, _delta_chunked, parts, ScanChunks.of(v.shape[2], chunk), cache, rank, name).flatten(
        1, 2
    )


def product_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor,
    chunk: int,
    cache: LayerCache | None = None,
    name: str = STATE,
) -> Tensor:
    """`delta_scan` with r delta-rule steps per token: the state decays before the first step, and o_t = S_tᵀ q_t is
    read after the last. Siems et al. 2025 (DeltaProduct), arXiv:2502.10297.

    q: (B, G, T, n), decay: (B, H, T); keys, values and strengths have r consecutive rows per token: (B, G, T·r, n),
    (B, H, T·r, p), (B, H, T·r) → (B, H, T, p).
    """
    length = q.shape[2]
    rank = k.shape[2] // length
    check_shape("decay", decay, (*v.shape[:2], length), "(B, H, T), T the tokens of q")
    if rank == 1:
        return delta_scan(q, k, v, decay, strength, chunk, cache, name=name)
    # One row per step. Only the last row of a token holds its query; outputs of the other rows are dropped.
    q = F.pad(q[..., None, :], (0, 0, rank - 1, 0)).flatten(2, 3)
    decay = F.pad(decay[..., None], (0, rank - 1)).flatten(2)
    read = delta_scan(q, k, v, decay, strength, chunk, cache, rank, name)
    return read[:, :, -1:] if length == 1 else read[:, :, rank - 1 :: rank]


def _delta_one(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the recurrence. All (B, G, H/G or 1, r, …), one row per step; state: (B, G, H/G, n, p). The first
    row holds the token's decay, the last one its query."""
    state = decay[..., :1, :].exp().transpose(-1, -2) * state  # a S
    for key, value, beta in zip(k.split(1, -2), v.split(1, -2), strength.split(1, -2), strict=True):
        state = state + key.transpose(-1, -2) @ (beta * (value - key @ state))  # + k uᵀ, u = β (v − a Sᵀ k)
    return q[..., -1:, :] @ state, state


def _delta_chunked(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """All (B, G, H/G or 1, N, C, …) → outputs, and the state after the last token if `keep`, else None."""
    total = decay.cumsum(dim=-2)  # c: (B, G, H/G, N, C, 1 or n)
    count, known = q.shape[3], int(state is None)
    # For all chunks at once: the terms that do not depend on the state. known: 1 if the first chunk starts from zero.
    wanted = strength * v  # (1) β V: (B, G, H/G, N, C, p)
    weights = decayed_scores(q, k, total)  # (2) Q Kᵀ ⊙ exp(c_i − c_j): (B, G, H/G, N, C, C)
    reads = (strength * total.exp() * k)[:, :, :, known:] if known < count else None  # (1) β e^c ⊙ K: (…, C, n)
    if q.shape[-2] > 1:  # for a single token, L = 0
        inverse = unit_inverse((strength * decayed_scores(k, k, total)).tril(-1))  # (1) (I + L)⁻¹
        wanted, reads = inverse @ wanted, reads if reads is None else inverse[:, :, :, known:] @ reads
    parts: list[Tensor] = []
    # Chunk by chunk: the terms that do.
    for i in range(count):
        c, new = total[:, :, :, i], wanted[:, :, :, i]
        if state is not None and reads is not None:
            new = new - reads[:, :, :, i - known] @ state  # (1) U: (B, G, H/G, C, p)
        out = weights[:, :, :, i] @ new  # (2)
        if state is not None:
            out = out + decayed_read(q[:, :, :, i], c.exp(), state)  # (2) (e^c ⊙ Q) S
        parts.append(out)
        if keep or i + 1 < count:
            last = c[..., -1:, :]
            added = decayed_write(k[:, :, :, i], (last - c).exp(), new)  # (3) (B, G, H/G, n, p)
            state = added if state is None else last.exp().transpose(-1, -2) * state + added
    return torch.stack(parts, dim=3), state if keep else None


def unit_inverse(lower: Tensor) -> Tensor:
    """(I + L)⁻¹ for strictly lower triangular L: (…, C, C), C a power of two.

    Recursion over blocks: [[A, 0], [M, B]]⁻¹ = [[A⁻¹, 0], [−B⁻¹ M A⁻¹, B⁻¹]], from blocks of size 1 up to C/2. The
    log₂ C steps of matrix products lose no more precision than forward substitution.
    """
    size, block = lower.shape[-1], 1
    inverse = torch.ones_like(lower[..., :1, None])  # (…, C/b, b, b)
    while block < size:
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        grid = lower.unflatten(-1, (-1, 2 * block)).unflatten(-3, (-1, 2 * block))
        diagonal = grid.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # (…, C/2b, 2b, 2b), the blocks on the diagonal
        below = diagonal[..., block:, :block]
        inverse = assembled(inverse, -(second @ below @ first) if block > 1 else -below)
        block *= 2
    return inverse[..., 0, :, :]


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
    return stepwise(_dplr_one, _dplr_chunked, (q, k, read, erase, decay, v), chunks, cache, name=name)


def _dplr_one(
    q: Tensor, k: Tensor, read: Tensor, erase: Tensor, decay: Tensor, v: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of the recurrence. All (B, H, 1, …), state: (B, H, n, p)."""
    kept = decay.exp().transpose(-1, -2) * state
    state = kept - erase.transpose(-1, -2) @ (read @ state) + k.transpose(-1, -2) @ v
    return q @ state, state


def _dplr_chunked(
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
