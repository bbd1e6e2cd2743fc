"""Several optimizers as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ablate.training.optimizers import Group, StateDict, Trained, Updates
from ablate.training.optimizers.adamw import AdamW


def beside_adamw(
    matrices: Callable[[Sequence[Trained], float], Updates],
    trained: Sequence[Trained],
    lr: float,
    betas: tuple[float, float],
    ratio: float = 1.0,
) -> Combined:
    """`matrices` for 2-D weights of the roles input and output; AdamW, at `ratio` times the rate, for all others."""
    ours, rest = list[Trained](), list[Trained]()
    for each in trained:
        if each.role in ("input", "output") and each.parameter.ndim == 2:
            ours.append(each)
        else:
            rest.append(replace(each, lr_factor=each.lr_factor * ratio))
    parts = [matrices(ours, lr)] if ours else []
    return Combined([*parts, AdamW(betas=betas).build(rest, lr)] if rest else parts)


class Combined:
    """Optimizers of disjoint parameters, stepped in order and saved together."""

    def __init__(self, parts: Sequence[Updates]) -> None:
        self.parts = tuple(parts)

    @property
    def param_groups(self) -> list[Group]:
        """The parts' own groups: setting a rate here sets it in the part."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> StateDict:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: StateDict) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
