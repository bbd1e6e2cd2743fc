"""The kinds of probe, by what they read: a forward pass, the gradients, or an update."""

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
    """A place in the model: a layer (None outside the layers), and a name within it."""

    layer: int | None
    name: str

    @staticmethod
    def of(path: str) -> ProbeSite:
        """`blocks.3.ffn.up.weight` is `ffn.up.weight` of layer 3."""
        match = _BLOCK.fullmatch(path)
        return ProbeSite(int(match[1]), match[2]) if match else ProbeSite(None, path)


@dataclass(frozen=True)
class Reading:
    """One number of a layer (None: the whole model): its name and its value, a 0-dimensional tensor."""

    layer: int | None
    name: str
    value: Tensor


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model: its role (see `zoo.init`), its value and, if known, its gradient and its value before
    the update."""

    place: ProbeSite
    role: str
    value: Tensor
    gradient: Tensor | None = None
    before: Tensor | None = None


class TapProbe(ABC):
    """Reads the values that a forward pass shows under `tap`, layer by layer (see `zoo.taps`)."""

    tap: str

    @abstractmethod
    def read(self, shown: Tensor) -> Mapping[str, Tensor]:
        """Numbers by name, from the values shown."""


class GradientProbe(ABC):
    """Reads the gradients of the training objective, before clipping."""

    @abstractmethod
    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        """Numbers from parameters that all have a `gradient`."""


class UpdateProbe(ABC):
    """Reads the changes of an optimiser step."""

    @abstractmethod
    def read(self, parameters: Iterable[Parameter]) -> Iterable[Reading]:
        """Numbers from parameters that all have a value `before` the step; `value` is the one after it."""


Probe = TapProbe | GradientProbe | UpdateProbe


def groups(parameters: Iterable[Parameter]) -> dict[tuple[int | None, str], list[Parameter]]:
    """Groups of parameters by (layer, name). A parameter belongs to:

    - `all` of the whole model (layer None) and, if it is in a layer, `all` of that layer;
    - its role in the whole model: (None, `input`);
    - if it is in a layer, its part and role there: (3, `ffn.output`).
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
    """√Σ x² over all tensors, in float32."""
    return torch.stack([tensor.float().square().sum() for tensor in tensors]).sum().sqrt()
