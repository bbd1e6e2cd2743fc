"""Optimizers: one file per kind, named after it; there is no other list.

    train: {optimizer: lion}
    train: {optimizer: {kind: muon, momentum: 0.9, cautious_decay: true}}

A kind has the settings of its own file and `cautious_decay`; any other is an unknown key. Settings of all kinds are in
`TrainSpec`: `lr` is the peak of the schedule, and `weight_decay` is decoupled in every kind: each step multiplies a
parameter by 1 − lr · weight_decay and then updates it (Loshchilov & Hutter 2017, arXiv:1711.05101; in `schedule_free`,
the one that gradients move by the one that they are taken at). With `cautious_decay: true`, which every kind has, this
leaves out the entries that the update moves away from zero.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from zoo.init import Role
from zoo.settings.axis import Variant

Average = Annotated[float, Field(ge=0, lt=1)]
"""Weight of the past in a moving average; at 1 the average would never move."""


def _two(value: Any) -> Any:
    """Raise ValueError with the number found; pydantic would only report a missing second number."""
    if isinstance(value, list | tuple) and len(value) != 2:
        raise ValueError(f"must be two numbers, not {len(value)}")
    return value


Betas = Annotated[tuple[Average, Average], Field(strict=False), BeforeValidator(_two)]

EPS = 1e-8
"""ε of AdamW."""

Group: TypeAlias = dict[str, Any]
"""Parameters with common settings, as in `param_groups` of torch's optimizers."""
StateDict: TypeAlias = dict[str, Any]
"""The state of an optimizer between steps, or its part for one parameter, as torch saves and loads it."""


@dataclass(frozen=True)
class Trained:
    """A parameter and its training settings. `lr_factor` multiplies the schedule's learning rate, `eps_factor` AdamW's
    ε."""

    parameter: nn.Parameter
    role: Role
    weight_decay: float
    lr_factor: float = 1.0
    eps_factor: float = 1.0


class Updates(Protocol):
    """The interface of optimizers that training uses: torch's own have it, and so does `Combined`."""

    @property
    def param_groups(self) -> list[Group]: ...

    def step(self) -> Any: ...

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state_dict: StateDict) -> None: ...


class Optimizer(Variant):
    """The rule that turns gradients into updates. Each subclass documents its own."""

    cautious_decay: bool = False
    """Decay only the entries that the update moves towards zero, too (Chen et al. 2025, arXiv:2510.12402)."""
    decays_cautiously: ClassVar[bool] = False
    """Whether `build` obeys `cautious_decay`; if not, training wraps the optimizer (`_cautious.py`)."""
    averages: ClassVar[bool] = False
    """Whether its updates are `ScoredWeights`, an average in place of a schedule and of `train.average`."""
    ignores_gradient_size: ClassVar[bool] = True
    """Whether scaling all gradients by a constant leaves the updates unchanged."""

    @abstractmethod
    def build(self, trained: Sequence[Trained], lr: float) -> Updates:
        """The optimizer of these parameters. Training sets each group's `lr`, schedule × `lr_factor`, at every step."""

    def width_factors(self, ratio: float) -> Mapping[Role, float] | None:
        """Learning-rate factors of roles at `ratio` times the base width, 1 for a role that is not named (see
        `ablate.training.transfer`); None if no rule is known."""
        return None


def groups(trained: Iterable[Trained], lr: float) -> list[Group]:
    """One group per combination of weight decay and factors, in the order of their first parameters."""
    found: dict[tuple[float, float, float], Group] = {}
    for each in trained:
        settings = {"lr": lr * each.lr_factor, "lr_factor": each.lr_factor, "weight_decay": each.weight_decay}
        if each.eps_factor != 1:
            settings["eps"] = EPS * each.eps_factor
        of = each.weight_decay, each.lr_factor, each.eps_factor
        group = found.setdefault(of, {"params": [], **settings})
        group["params"].append(each.parameter)
    return list(found.values())


def with_gradients(optimizer: Updates) -> Iterator[tuple[Group, nn.Parameter, Tensor]]:
    """Every parameter that has a gradient, with its group."""
    for group in optimizer.param_groups:
        yield from ((group, parameter, parameter.grad) for parameter in group["params"] if parameter.grad is not None)
