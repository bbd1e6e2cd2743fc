"""AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from ablate.training.optimizers import Betas, Optimizer, Trained, Updates, groups
from zoo.init import Role


class AdamW(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · m̂ / (√v̂ + 1e-8), with bias-corrected moving averages m̂ of g and v̂ of g².

    Kingma & Ba 2014, arXiv:1412.6980; Loshchilov & Hutter 2017, arXiv:1711.05101. torch's own, fused.
    """

    kind: Literal["adamw"] = "adamw"
    betas: Betas = (0.9, 0.95)
    """Weights of the past in the averages of g and of g²."""

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        fused = all(each.parameter.is_floating_point() for each in trained)
        return torch.optim.AdamW(groups(trained, lr), lr=lr, betas=self.betas, fused=fused)

    def width_factors(self, ratio: float) -> Mapping[Role, float]:
        return per_entry(ratio)


def per_entry(ratio: float) -> dict[Role, float]:
    """Width factors of optimizers that move every entry by about lr, whatever its gradient's size."""
    return {"embedding": ratio**-0.5, "input": 1 / ratio, "output": 1 / ratio, "head": 1 / ratio}
