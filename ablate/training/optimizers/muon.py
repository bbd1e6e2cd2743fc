"""Muon for matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import PositiveFloat

from ablate.training.optimizers import Average, Betas, Optimizer, Trained, Updates, groups
from ablate.training.optimizers._combined import beside_adamw
from ablate.training.optimizers._stacked_muon import NorMuonUpdates, StackedMuon
from ablate.training.optimizers.adamw import per_entry
from zoo.init import Role
from zoo.kernels.tracing import device_type


class Muon(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · s · O, where O ≈ U Vᵀ for the momentum's U S Vᵀ, by five Newton–Schulz steps in bfloat16.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. torch's own, available since 2.9, the oldest torch
    that this project supports. It trains matrices of the roles input and output; AdamW trains the rest: the token
    table, the head, gains, biases, and the stacked matrices of experts, which torch's Muon refuses. On a GPU, matrices
    of one shape are updated in one batch.

    The two rates: `lr` is Muon's, and AdamW's is `adamw_lr_ratio` × `lr` at every step, on the same schedule.
    With the default `adjust`, Muon's update has a root mean square of about 0.2 per entry, like AdamW's, so that one
    rate suits both. Jordan's own recipe, 0.02 for Muon and 3e-4 for AdamW, is
    `lr: 0.02, optimizer: {kind: muon, adjust: original, adamw_lr_ratio: 0.015}`.

    NorMuon (Li et al. 2025, arXiv:2510.05491, with the code of its authors) is `neuron_beta: 0.95`: rows of O are
    divided by the root of a moving average of their mean square, so that no neuron moves more than others, and O is
    rescaled to its former norm.
    """

    kind: Literal["muon"] = "muon"
    momentum: Average = 0.95
    """Weight of the past in the moving average of g."""
    nesterov: bool = True
    """Nesterov's look-ahead: the average is moved once more towards g."""
    adjust: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """s, by the matrix's shape: 0.2 · √max(out, in) (Liu et al. 2025, arXiv:2502.16982) or √max(1, out / in)."""
    neuron_beta: Average | None = None
    """NorMuon's β₂: weight of the past in the average of each row's mean square; null for Muon."""
    adamw_lr_ratio: PositiveFloat = 1.0
    """AdamW's learning rate divided by Muon's."""
    betas: Betas = (0.9, 0.95)
    """Decay rates β₁ and β₂ of AdamW's moments, for the parameters that Muon does not train."""

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        return beside_adamw(self._muon, trained, lr, self.betas, self.adamw_lr_ratio)

    def _muon(self, trained: Sequence[Trained], lr: float) -> Updates:
        kind: Callable[..., Updates] = torch.optim.Muon
        if self.neuron_beta is not None:
            kind = partial(NorMuonUpdates, neuron_beta=self.neuron_beta)
        elif device_type(trained[0].parameter) == "cuda":
            kind = StackedMuon
        return kind(
            groups(trained, lr), lr=lr, momentum=self.momentum, nesterov=self.nesterov, adjust_lr_fn=self.adjust
        )

    def width_factors(self, ratio: float) -> Mapping[Role, float] | None:
        if self.neuron_beta is not None:
            return None
        ours = ratio**-0.5 if self.adjust == "match_rms_adamw" else 1.0
        return {**per_entry(ratio), "input": ours, "output": ours}
