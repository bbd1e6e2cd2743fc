"""Modifications of attention scores: scale, bias, softcap, sinks, dropout."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from zoo.site import Tap


@dataclass(frozen=True)
class Scoring:
    """Scores softcap(QKᵀ · scale + bias), and the softmax over them.

    softcap: c · tanh(z / c) (Gemma 2, arXiv:2408.00118), before the mask. bias: (H, T, S) or (B, H, T, S),
    or a shape that broadcasts to it.
    sinks: (H,), a logit per head that takes its share of the softmax and gives no value (gpt-oss, arXiv:2508.10925).
    dropout: probability that a weight is dropped. tap: receives the largest scores, the entropies and the weights,
    whatever the backend (see `zoo.attending.plain`).
    """

    scale: float
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0
    tap: Tap | None = None
