"""Stochastic depth: branches that are dropped at random in training."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.site import LayerSite


class StochasticDepth(nn.Module):
    """update: (B, T, D) → update · b / (1 − p_l), b: (B, 1, 1) is 0 with probability p_l; the identity in evaluation.
    Huang et al. 2016, arXiv:1603.09382.

    p_l = p (l + 1) / L in layer l, counted from 0: linear in depth. The paper multiplies by 1 − p_l in evaluation
    instead, which has the same mean. Rows and branches are drawn independently.
    """

    def __init__(self, rate: float, site: LayerSite) -> None:
        super().__init__()
        self.rate = rate * (site.layer + 1) / site.n_layers

    def forward(self, update: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return update
        kept = update.new_empty(update.shape[0], 1, 1).bernoulli_(1 - self.rate)
        return update * (kept / (1 - self.rate))
