"""Several optimizers as one."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.training.optimizers import Group, StateDict, Updates


class Combined:
    """Optimizers of disjoint parameters, stepped in order and saved together."""

    def __init__(self, parts: Sequence[Updates]) -> None:
        self.parts = tuple(parts)

    @property
    def param_groups(self) -> list[Group]:
        """The groups themselves: a rate that is set here is set in the part."""
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
