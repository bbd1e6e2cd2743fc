"""The kinds of probe, by what they look at: a forward pass, the gradients, or an update."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")


@dataclass(frozen=True)
class ProbeSite:
    """Where in the model something is: which layer (None for what belongs to none of them), and its name there."""

    layer: int | None
    name: str

    @staticmethod
    def of(path: str) -> ProbeSite:
        """`blocks.3.ffn.up.weight` is `ffn.up.weight` of layer 3."""
        match = _BLOCK.fullmatch(path)
        return ProbeSite(int(match[1]), match[2]) if match else ProbeSite(None, path)


@dataclass(frozen=True)
class Reading:
    """One number: of which layer, what of it, and how much (a tensor of no dimensions)."""

    layer: int | None
    name: str
    value: Tensor


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model: its role (see `zoo.init`), value and, as far as they are known, its gradient and its
    value before the update."""

    place: ProbeSite
    role: str
    value: Tensor
    gradient: Tensor | None = None
    before: Tensor | None = None


class TapProbe(ABC):
    """Looks at what a forward pass shows under `tap`, layer by layer (see `zoo.taps`)."""

    tap: str

    @abstractmethod
    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        """Numbers by name, from the watched values."""


class GradientProbe(ABC):
    """Looks at the gradients of what training minimises, before they are clipped."""

    @abstractmethod
    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        """All have a `gradient`."""


class UpdateProbe(ABC):
    """Looks at what a step of the optimiser changes."""

    @abstractmethod
    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        """All have a value `before` the step; `value` is that after it."""


Probe = TapProbe | GradientProbe | UpdateProbe


def groups(parameters: Iterable[Parameter]) -> dict[tuple[int | None, str], list[Parameter]]:
    """Sets of parameters by (layer, name), every parameter in some of them:

    - `all`, its layer's, or that of the whole model (layer None);
    - its role's over the whole model: (None, `input`);
    - its part's and role's in its layer: (3, `ffn.output`).
    """
    found: dict[tuple[int | None, str], list[Parameter]] = {}
    for parameter in parameters:
        layer, part = parameter.place.layer, parameter.place.name.partition(".")[0]
        keys: list[tuple[int | None, str]] = [(None, "all"), (None, parameter.role)]
        if layer is not None:
            keys += [(layer, "all"), (layer, f"{part}.{parameter.role}")]
        for key in keys:
            found.setdefault(key, []).append(parameter)
    return found


def norm(tensors: Iterable[Tensor]) -> Tensor:
    """√Σ x² over all of them, in float32."""
    return torch.stack([tensor.float().square().sum() for tensor in tensors]).sum().sqrt()
