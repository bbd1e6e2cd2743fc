"""SOAP for matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from ablate.training.optimizers import EPS, Betas, Group, Optimizer, StateDict, Trained, Updates, groups, with_gradients
from ablate.training.optimizers._combined import beside_adamw


class SOAP(Optimizer):
    """θ ← θ (1 − lr·λ) − lr · Q_L (m̂′ / (√v̂ + 1e-8)) Q_Rᵀ: Adam in the basis of Shampoo's preconditioners, where
    g′ = Q_Lᵀ g Q_R, m′ = Q_Lᵀ m Q_R, v ← β₂ v + (1 − β₂) g′². Vyas et al. 2024, arXiv:2409.11321, algorithm 3.

    L ← β₂ L + (1 − β₂) g gᵀ and R, of gᵀ g, are averaged at every step; every `every` steps their eigenvectors Q are
    updated by one step of power iteration and a QR decomposition, and sorted by eigenvalue, and v with them. As in the
    authors' code, the first gradient only initialises the bases, by an exact decomposition, and updates no weights: no
    step is taken in a basis that its own gradient has shaped. It trains matrices of the roles input and output; AdamW
    trains the rest.
    """

    kind: Literal["soap"] = "soap"
    betas: Betas = (0.95, 0.95)
    """Weights of the past in m, and in v, L and R."""
    every: PositiveInt = 10
    """Steps between two updates of the eigenvectors."""
    max_features: PositiveInt = 10_000
    """A side of a matrix with more features than this is not rotated."""

    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        def soap(ours: Sequence[Trained], lr: float) -> Updates:
            return SOAPUpdates(groups(ours, lr), self.betas, self.every, self.max_features)

        return beside_adamw(soap, trained, lr, self.betas)


class SOAPUpdates(torch.optim.Optimizer):
    """SOAP's updates. State per parameter: `momentum` and `square`, (m, n); for each rotated side `gram0`, `basis0`,
    (m, m), and `gram1`, `basis1`, (n, n)."""

    def __init__(self, param_groups: list[Group], betas: tuple[float, float], every: int, max_features: int) -> None:
        super().__init__(param_groups, {"betas": betas, "every": every, "max_features": max_features})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update from the existing gradients; `closure` is ignored."""
        for group, parameter, own in with_gradients(self):
            state, gradient = self.state[parameter], own.to(torch.promote_types(parameter.dtype, torch.float32))
            if not state:
                self._begin(state, gradient, group)
                continue
            update = self._update(state, gradient, group["betas"])
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update.to(parameter.dtype), alpha=-group["lr"])
            self._follow(state, gradient, group)

    def _begin(self, state: StateDict, gradient: Tensor, group: Group) -> None:
        state["step"] = 0
        state["momentum"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        for side in (0, 1):
            if gradient.shape[side] <= group["max_features"]:
                gram = (1 - group["betas"][1]) * _gram(gradient, side)
                state[f"gram{side}"] = gram
                state[f"basis{side}"] = torch.linalg.eigh(gram).eigenvectors.flip(1)  # largest eigenvalue first

    def _update(self, state: StateDict, gradient: Tensor, betas: tuple[float, float]) -> Tensor:
        """Q_L (m̂′ / (√v̂ + ε)) Q_Rᵀ."""
        beta1, beta2 = betas
        state["step"] += 1
        t = state["step"]
        momentum, square = state["momentum"], state["square"]
        momentum.lerp_(gradient, 1 - beta1)
        square.lerp_(_rotated(gradient, state).square(), 1 - beta2)
        scale = (square / (1 - beta2**t)).sqrt_().add_(EPS)
        return _rotated(_rotated(momentum, state) / (1 - beta1**t) / scale, state, back=True)

    def _follow(self, state: StateDict, gradient: Tensor, group: Group) -> None:
        """Update L and R with the gradient and, every `every` steps, their bases."""
        for side in (0, 1):
            if f"gram{side}" not in state:
                continue
            gram, basis = state[f"gram{side}"], state[f"basis{side}"]
            gram.lerp_(_gram(gradient, side), 1 - group["betas"][1])
            if state["step"] % group["every"] == 0:
                powered = gram @ basis  # one step of power iteration
                order = (basis * powered).sum(0).argsort(descending=True)  # diag(Qᵀ L Q): about the eigenvalues
                state["square"].copy_(state["square"].index_select(side, order))
                basis.copy_(torch.linalg.qr(powered[:, order]).Q)


def _gram(gradient: Tensor, side: int) -> Tensor:
    """g gᵀ or gᵀ g."""
    return gradient @ gradient.T if side == 0 else gradient.T @ gradient


def _rotated(x: Tensor, state: StateDict, *, back: bool = False) -> Tensor:
    """Q_Lᵀ x Q_R, or Q_L x Q_Rᵀ on the way back."""
    left, right = state.get("basis0"), state.get("basis1")
    if left is not None:
        x = (left if back else left.T) @ x
    if right is not None:
        x = x @ (right.T if back else right)
    return x
