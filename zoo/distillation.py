"""Knowledge distillation: a teacher's distribution over each next token as a target, in addition to the text (Hinton et
al. 2015, arXiv:1503.02531).

    loss = (1 − w) · CE(text, p_s) + w · T² · KL(p_t^{1/T} ‖ p_s^{1/T})        p^{1/T} = softmax(logits / T)

T² keeps the scale of gradients independent of the temperature: the second term's gradient with respect to the student's
logits is w · T · (p_s^{1/T} − p_t^{1/T}).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class SoftTargets:
    """A teacher's hidden states and its head, which is applied to a few rows at a time, so that the logits of all rows
    are never in memory."""

    rows: Tensor
    """Hidden states, (N, D) or (B, T, D), D being the teacher's width."""
    read_out: Callable[[Tensor], Tensor]
    temperature: float = 1.0
    weight: float = 0.5
    """w, the weight of the teacher's term."""
    top_k: int | None = None
    """Number of the teacher's likeliest tokens to keep, renormalised to sum to one; null for all."""

    def flat(self) -> SoftTargets:
        return replace(self, rows=self.rows.flatten(0, -2))

    def at(self, piece: slice) -> SoftTargets:
        """The same for some of its rows."""
        return replace(self, rows=self.rows[piece])

    def log_p(self) -> Tensor:
        """(n, V), float32: log p_t^{1/T}."""
        with torch.no_grad():  # as a decorator it would break the graph of torch.compile
            logits = self.read_out(self.rows).float() / self.temperature
            if self.top_k is not None and self.top_k < logits.shape[-1]:
                kept = logits.topk(self.top_k, dim=-1)
                logits = torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)
            return logits.log_softmax(dim=-1)

    def divergence(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """(): Σ w · T² · KL over the rows where counts is true. logits: (n, V), the student's, float32; counts: (n,);
        theirs: the teacher's `log_p`."""
        ours, p = (logits / self.temperature).log_softmax(dim=-1), theirs.exp()
        # Clamped, because 0 · −∞ is NaN: tokens outside the top k add 0.
        each = (p * (theirs.clamp(min=torch.finfo(p.dtype).min) - ours)).sum(dim=-1)
        return self.weight * self.temperature**2 * each.where(counts, 0.0).sum()

    def gradient(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """(n, V): gradient of `divergence` with respect to the student's logits."""
        unlike = (logits / self.temperature).softmax(dim=-1) - theirs.exp()
        return self.weight * self.temperature * unlike * counts.to(logits.dtype)[:, None]
