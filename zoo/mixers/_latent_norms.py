"""Norms of queries and keys for attention whose keys are projected from a cached latent."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from zoo.kernels.precision import in_float32
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm, RMSNormLayer


class KeyNorms(NamedTuple):
    """own: position-free keys before their norm, (B, H, S, n), None if unknown; inverse_rms: 1/rms, (B, H, S, 1)."""

    own: Tensor | None
    inverse_rms: Tensor


class LatentNorms(nn.Module):
    """RMSNorms of queries and keys, separate for features without positions and features with them. Han et al. 2026,
    arXiv:2606.16310.

    q_n ← rms(q_n) ⊙ g, k_n ← W_k c / rms(W_k c) ⊙ g', and the same for q_r and k_r before positions. A head's q_nᵀ k_n
    is (W_kᵀ (g' ⊙ q_n))ᵀ c / rms(W_k c): the gains move to the queries, as W_k does, and one number remains of a key's
    norm.
    """

    def __init__(self, norm: Norm, nope_dim: int, rope_dim: int) -> None:
        super().__init__()
        self.eps = cast(RMSNorm, norm).eps
        self.q_nope, self.k_nope = (cast(RMSNormLayer, norm.build(nope_dim)) for _ in range(2))
        self.q_rope, self.k_rope = (norm.build(rope_dim) for _ in range(2))

    def inverse_rms(self, keys: Tensor) -> Tensor:
        """1/rms of keys: (B, H, T, n) → (B, H, T, 1)."""
        found = in_float32(lambda k: torch.rsqrt(k.square().mean(-1, keepdim=True) + self.eps), keys)
        return found.to(keys.dtype)

    def with_gain(self, x: Tensor) -> Tensor:
        """Apply the keys' gain g' to normalised keys or, if these do not have it, to queries: (…, n)."""
        gain = self.k_nope.gain
        return x if gain is None else x * (gain + self.k_nope.gain_offset)
