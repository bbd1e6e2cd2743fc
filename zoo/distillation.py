"""Knowledge distillation: a teacher's distribution over every token as a target beside the text itself (Hinton et al.
2015, arXiv:1503.02531).

    loss = (1 − w) · CE(text, p_s) + w · T² · KL(p_t^{1/T} ‖ p_s^{1/T})        p^{1/T} = softmax(logits / T)

T² keeps gradients of one size whatever the temperature: that of the second term with respect to the student's logits is
w · T · (p_s^{1/T} − p_t^{1/T}).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class SoftTargets:
    """A teacher's hidden states, and how it reads them out. They are read out a few rows at a time: logits of all never
    lie in memory."""

    rows: Tensor
    """(N, D) of the teacher's width, or (B, T, D)."""
    read_out: Callable[[Tensor], Tensor]
    temperature: float = 1.0
    weight: float = 0.5
    """w, the share of the teacher."""
    top_k: int | None = None
    """Number of the teacher's likeliest tokens to keep, renormalised to sum to one; null for all."""

    def flat(self) -> SoftTargets:
        return replace(self, rows=self.rows.flatten(0, -2))

    def at(self, piece: slice) -> SoftTargets:
        """Some of its rows."""
        return replace(self, rows=self.rows[piece])

    @torch.no_grad()
    def log_p(self) -> Tensor:
        """(n, V), float32: log p_t^{1/T}."""
        logits = self.read_out(self.rows).float() / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            kept = logits.topk(self.top_k, dim=-1)
            logits = torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)
        return logits.log_softmax(dim=-1)

    def divergence(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """() Σ of w · T² · KL over the rows that count. logits: (n, V), the student's, float32; counts: (n,); theirs:
        `log_p`."""
        ours, p = (logits / self.temperature).log_softmax(dim=-1), theirs.exp()
        # 0 · −∞ is 0 here: tokens that were left out add nothing.
        each = (p * (theirs.clamp(min=torch.finfo(p.dtype).min) - ours)).sum(dim=-1)
        return self.weight * self.temperature**2 * each.where(counts, 0.0).sum()

    def gradient(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """(n, V): of `divergence` with respect to the student's logits."""
        unlike = (logits / self.temperature).softmax(dim=-1) - theirs.exp()
        return self.weight * self.temperature * unlike * counts.to(logits.dtype)[:, None]
