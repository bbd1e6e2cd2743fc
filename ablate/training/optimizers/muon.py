"""Muon for matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.optim._muon import _adjust_lr

from ablate.training.optimizers import Average, Betas, Group, Optimizer, Trained, Updates, groups
from ablate.training.optimizers._combined import beside_adamw
from ablate.training.optimizers.adamw import per_entry
from zoo.init import Role
from zoo.kernels.compiling import device_type

# torch's Muon, batched over matrices of one shape: a few large kernels in place of many small ones.

ROW_EPS = 1e-10
"""Added to roots and norms before dividing by them, as in the code of NorMuon's authors."""


class StackedMuon(torch.optim.Muon):
    """The updates, state and settings of torch's Muon, in a quarter of the kernels for six layers.

    Results differ in rounding from torch's loop, since batched products sum in another order. On a CPU, plain Muon is
    torch's loop.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if closure is not None:
            raise ValueError("Muon takes no closure here")
        for group in self.param_groups:
            parameters: list[Tensor] = []
            gradients: list[Tensor] = []
            momenta: list[Tensor] = []
            self._init_group(group, parameters, gradients, momenta)
            if not parameters:
                continue
            lr, momentum = float(group["lr"]), group["momentum"]
            torch._foreach_lerp_(momenta, gradients, 1 - momentum)
            moved = torch._foreach_lerp(gradients, momenta, momentum) if group["nesterov"] else momenta
            torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
            by_shape: dict[torch.Size, list[int]] = {}
            for number, parameter in enumerate(parameters):
                by_shape.setdefault(parameter.shape, []).append(number)
            for shape, numbers in by_shape.items():
                mine = [parameters[number] for number in numbers]
                stack = torch.stack([moved[number] for number in numbers])  # (N, out, in)
                updates = orthogonalised(stack, group["ns_coefficients"], group["ns_steps"], group["eps"])
                updates = self._scaled(updates, mine)
                rate = _adjust_lr(lr, group["adjust_lr_fn"], shape)
                torch._foreach_add_(mine, [each.to(mine[0].dtype) for each in updates.unbind()], alpha=-rate)
        return None

    def _scaled(self, updates: Tensor, parameters: list[Tensor]) -> Tensor:
        """Hook of subclasses: the updates of these parameters as applied, (N, out, in)."""
        return updates


class NorMuonUpdates(StackedMuon):
    """Muon whose updates are divided, row by row, by the root of a moving average of the row's mean square, and then
    rescaled to their former norm. Extra state per matrix: `rows`, (out, 1), of the matrix's dtype."""

    def __init__(self, param_groups: list[Group], neuron_beta: float, **settings: Any) -> None:
        super().__init__(param_groups, **settings)
        self.neuron_beta = neuron_beta

    def _scaled(self, updates: Tensor, parameters: list[Tensor]) -> Tensor:
        wide = updates.to(torch.promote_types(parameters[0].dtype, torch.float32))
        for parameter, update in zip(parameters, wide, strict=True):
            rows = self.state[parameter].setdefault("rows", torch.zeros_like(parameter[:, :1]))
            rows.lerp_(update.square().mean(dim=1, keepdim=True).to(rows.dtype), 1 - self.neuron_beta)
        scaled = wide / (torch.stack([self.state[each]["rows"] for each in parameters]).sqrt() + ROW_EPS)
        lengths = [x.norm(dim=(1, 2), keepdim=True) for x in (wide, scaled)]
        again: Tensor = scaled * (lengths[0] / (lengths[1] + ROW_EPS))
        return again


def orthogonalised(
    stack: Tensor,
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """(N, out, in) → (N, out, in), computed in `dtype`: approximately U Vᵀ of each matrix U S Vᵀ, by torch's
    Newton–Schulz steps: X ← a X + (b A + c A²) X with A = X Xᵀ."""
    a, b, c = coefficients
    x = stack.to(dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT  # A = X Xᵀ
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b A + c A²
        x = torch.baddbmm(x, polynomial, x, beta=a)  # a X + (b A + c A²) X
    return x.mT if tall else x


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
