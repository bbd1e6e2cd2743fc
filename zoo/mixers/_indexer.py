"""Indexer: a small scorer that selects the keys that a query attends to."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.norms.layernorm import LayerNorm
from zoo.positions import Position
from zoo.site import ForwardPass

KEY_NORM = LayerNorm(eps=1e-6)


class Indexer(nn.Module):
    """I_ts = Σ_j w_tj · ReLU(q_tj · k_s), j over the indexer's heads. DeepSeek-AI 2025 (DeepSeek-V3.2),
    arXiv:2512.02556.

    q = rope(W_q c): (H_I, d_I), with c the input of the layer's query projection, k = rope(norm(W_k x)): (d_I), one for
    all heads, and w = W_w x: (H_I). Positions rotate the first ρ features of both. Scores have the factors 1/√d_I and
    1/√H_I of the released model, which do not change the selection. Inputs are detached: the indexer learns only from
    its own loss, and that loss trains nothing else.
    """

    def __init__(self, read: int, d_model: int, heads: int, features: int, position: Position, turned: int) -> None:
        super().__init__()
        self.heads, self.turned = heads, turned
        self.q = Linear(read, heads * features, role="input")
        self.k = Linear(d_model, features, role="input")
        self.k_norm = KEY_NORM.build(features)
        self.weights = Linear(d_model, heads, role="input")
        self.position = position.build(turned, heads)
        self.scale = (features * heads) ** -0.5

    def keys(self, x: Tensor, step: ForwardPass) -> Tensor:
        """(B, T, D) → the keys to cache: (B, 1, T, d_I)."""
        first, rest = self._parts(self.k_norm(self.k(x.detach()))[:, None])
        return torch.cat((self.position.rotate_keys(first, step), rest), dim=-1)

    def scores(self, read: Tensor, x: Tensor, keys: Tensor, step: ForwardPass) -> Tensor:
        """read: (B, T, …), x: (B, T, D), keys: (B, 1, S, d_I) → I: (B, T, S), in float32 or wider."""
        first, rest = self._parts(self.q(read.detach()).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        q = torch.cat((self.position.rotate_queries(first, step), rest), dim=-1)
        return in_float32(self._scores, q, keys, self.weights(x.detach()))

    def moved(self, keys: Tensor, by: int) -> Tensor:
        """Cached keys as they would be at positions shifted by `by`."""
        first, rest = self._parts(keys)
        return torch.cat((self.position.moved(first, by), rest), dim=-1)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., : self.turned], x[..., self.turned :]

    def _scores(self, q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        hits = F.relu(q @ keys.transpose(-1, -2)) * self.scale  # (B, H_I, T, S)
        scores: Tensor = weights[..., None, :] @ hits.transpose(1, 2)
        return scores.squeeze(-2)


def chosen(scores: Tensor, seen: Tensor, places: Tensor, count: int) -> Tensor:
    """scores: (B, …, T, S), seen: the same or (T, S), places: (S,) → indices of the `count` largest visible scores:
    (B, …, T, min(count, S)). If fewer keys are visible, indices of hidden keys follow.

    Ties, which ReLU makes frequent, go to the earlier place, so that the order of keys in a cache does not matter.
    Without positions, the same token at two places has equal scores up to rounding, which depends on the shape of the
    product; the cast to float32 removes that difference from float64 scores.
    """
    order = places.argsort()
    ranked = (
        scores.detach().float().masked_fill(~seen, float("-inf"))[..., order].sort(dim=-1, descending=True, stable=True)
    )
    return order[ranked.indices[..., :count]]


def imitation_loss(scores: Tensor, weights: Tensor, taken: Tensor) -> Tensor:
    """Mean over tokens of KL(p ‖ softmax(I)) over the selected keys, p being attention weights averaged over heads.

    scores: (B, T, S), weights: (B, H, T, S), detached here, taken: (B, T, S), true for selected keys.
    """
    target = weights.detach().mean(dim=1)
    log_guess = scores.masked_fill(~taken, float("-inf")).log_softmax(dim=-1).masked_fill(~taken, 0.0)
    divergences: Tensor = torch.special.xlogy(target, target) - target * log_guess
    return divergences.sum(dim=-1).mean()
