"""Which keys a query attends to, chosen by a small scorer."""

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

    q = rope(W_q c): (H_I, d_I) of what the layer's queries read, k = rope(norm(W_k x)): (d_I), one for all heads, and
    w = W_w x: (H_I). Positions turn the first ρ features of both. Scores have the factors 1/√d_I and 1/√H_I of the
    released model, which change no choice. Nothing flows back into what it reads: it learns by a loss of its own.
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
        """(B, T, D) → (B, 1, T, d_I), to be cached."""
        first, rest = self._parts(self.k_norm(self.k(x.detach()))[:, None])
        return torch.cat((self.position.rotate_keys(first, step), rest), dim=-1)

    def scores(self, read: Tensor, x: Tensor, keys: Tensor, step: ForwardPass) -> Tensor:
        """(B, T, …), (B, T, D), (B, 1, S, d_I) → I: (B, T, S), in float32 or more."""
        first, rest = self._parts(self.q(read.detach()).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        q = torch.cat((self.position.rotate_queries(first, step), rest), dim=-1)
        return in_float32(self._scores, q, keys, self.weights(x.detach()))

    def moved(self, keys: Tensor, by: int) -> Tensor:
        """Cached keys, had they been `by` places further on."""
        first, rest = self._parts(keys)
        return torch.cat((self.position.moved(first, by), rest), dim=-1)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., : self.turned], x[..., self.turned :]

    def _scores(self, q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        hits = F.relu(q @ keys.transpose(-1, -2)) * self.scale  # (B, H_I, T, S)
        scores: Tensor = weights[..., None, :] @ hits.transpose(1, 2)
        return scores.squeeze(-2)


def chosen(scores: Tensor, seen: Tensor, places: Tensor, count: int) -> Tensor:
    """scores: (B, T, S), seen: the same or (T, S), places: (S,) → indices of the `count` largest that are seen:
    (B, T, count), of fewer where there are fewer keys. Where fewer are seen, the others follow.

    Of equal scores, which ReLU makes often, the earlier place counts as larger, so that the order in which a cache
    holds its keys decides nothing. Scores of one token in two places, where no position tells these apart, are equal
    but for rounding, which differs with the shape of the product: in float64 that is gone once they are float32.
    """
    order = places.argsort()
    ranked = (
        scores.detach().float().masked_fill(~seen, float("-inf"))[..., order].sort(dim=-1, descending=True, stable=True)
    )
    return order[ranked.indices[..., :count]]


def imitation_loss(scores: Tensor, weights: Tensor, taken: Tensor) -> Tensor:
    """Mean over tokens of KL(p ‖ softmax(I)) over the keys that are taken, p the mean over heads of attention weights.

    scores: (B, T, S), weights: (B, H, T, S), which no gradient reaches, taken: (B, T, S).
    """
    target = weights.detach().mean(dim=1)
    log_guess = scores.masked_fill(~taken, float("-inf")).log_softmax(dim=-1).masked_fill(~taken, 0.0)
    divergences: Tensor = torch.special.xlogy(target, target) - target * log_guess
    return divergences.sum(dim=-1).mean()
