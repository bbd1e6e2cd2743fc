"""Initial values, by parameter role: the one place that draws them.

| role      | parameters                                           | initial value                             |
|-----------|------------------------------------------------------|-------------------------------------------|
| embedding | token table                                          | N(0, 1/D)                                 |
| input     | projections that read the residual stream            | N(0, 1/fan_in)                            |
| output    | projections that write to it                         | by `InitSpec.output`                      |
| head      | untied head                                          | zero                                      |
| gain      | norm gains and other multipliers                     | one, or what the module's `initial` says  |
| bias      | biases and other offsets                             | zero, or what the module's `initial` says |

A module's `initial` gives numbers or tensors by the parameter's name; its `initial_std` standard deviations, for those
that are drawn around zero.

A tied head starts quietly. With gains of one it would give the token that it has just read a logit of logit_scale·√D,
since the stream still is mostly that token's own row of the table, and a model that knows nothing would start 2 nats
above log V; how far above would differ between arms that mix other things into the stream. So the gain of the norm
that a tied head reads starts at `InitSpec.tied_head` / (logit_scale·√D), at most 1: that logit is then `tied_head` at
most, and the others are N(0, tied_head²/D). It is learned like any other gain and soon forgets where it started.
Where no norm has such a gain to itself (norms without one, no norm before the head, or layers that share it) the token
table takes the factor instead, and `UNNORMED` of it where nothing norms the stream, which branches make larger than
one. An untied head starts at zero. `tests/zoo/test_start.py` holds models to log V: all that read a normed stream.

A branch under DeepNorm asks for its own standard deviation instead of the rule (see `zoo.residuals`).

Each tensor has its own generator, keyed by seed and parameter name, so models that agree on a name and a shape start
from the same values there, whatever else differs between them. `InitSpec.stream` gives the same seed other values, as
good as the first: an edit that changes nothing but luck, by which a comparison can be tested.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

import torch
from pydantic import NonNegativeInt, PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.kernels.grouped import grouped_product
from zoo.settings.axis import Spec
from zoo.settings.field_tags import Supports

Role = Literal["embedding", "input", "output", "head", "gain", "bias"]

ROLES: tuple[Role, ...] = get_args(Role)

UNNORMED = 0.5
"""Further factor on the initial logits of a tied head that reads an unnormed stream."""


class InitSpec(Spec):
    """Initial output projections: `zero`; `plain` N(0, 1/fan_in); `scaled` N(0, 1/(2L·fan_in)), after GPT-2."""

    supports: ClassVar[Operations] = EVERY_OPERATION

    output: Literal["zero", "plain", "scaled"] = "scaled"
    """Initial output projections, W_o and W_down: `zero`; `plain`, N(0, 1/fan_in); `scaled`, N(0, 1/(2L·fan_in))."""
    stream: Annotated[NonNegativeInt, Supports(*EVERY_OPERATION)] = 0
    """Which of many equivalent draws."""
    tied_head: PositiveFloat | None = 0.5
    """Upper bound on a tied head's initial logit of the token that it has just read; null for gains of one."""


class Linear(nn.Linear):
    """x: (..., in) → (..., out), with a role for its weight."""

    init_gain: float | None = None
    """Standard deviation times √fan_in, where a residual asks for its own; None for the rule."""
    init_factor: float = 1.0
    """Factor on the rule's standard deviation, set where a residual asks for one."""
    initial: Mapping[str, float | Tensor]
    """Initial values of constant parameters, where a mixer sets others than the rule's."""
    initial_std: Mapping[str, float]
    """Standard deviations that a mixer sets in place of the rule's; 0 for a constant."""

    def __init__(self, dim_in: int, dim_out: int, *, bias: bool = False, role: Role, values: bool = False) -> None:
        """role: of the weight, `input` or `output` in a layer; a bias has its own. values: whether this is the
        projection that a mixer reads its values with, which DeepNorm scales. Raises ValueError for an unknown role."""
        super().__init__(dim_in, dim_out, bias=bias)
        _check_role(role)
        self.roles = {"weight": role, "bias": "bias"}
        self.values = values

    if TYPE_CHECKING:  # torch says of a call that it gives anything

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the storage as it is: `initialise` fills it."""


class ExpertLinear(nn.Module):
    """E matrices: x: (M, in), sorted by expert, with load[e] rows for expert e → (M, out)."""

    init_gain: float | None = None
    init_factor: float = 1.0
    """Both as in `Linear`."""

    values: ClassVar[bool] = False
    """No mixer reads its values with experts."""

    def __init__(self, experts: int, dim_in: int, dim_out: int, *, bias: bool = False, role: Role) -> None:
        super().__init__()
        _check_role(role)
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts, dim_out, dim_in))
        self.bias = nn.Parameter(torch.empty(experts, dim_out)) if bias else None
        self.roles = {"weight": role, "bias": "bias"}

    def forward(self, x: Tensor, load: list[int] | Tensor) -> Tensor:
        """load: on the device where the products can be one kernel's (`zoo.kernels.grouped`), else on the host."""
        if isinstance(load, Tensor):
            return grouped_product(x, self.weight, self.bias, load)
        # unbind, whose gradient is one stack: indexing would fill a gradient of all experts once for each of them.
        weights = self.weight.unbind()
        biases = self.bias.unbind() if self.bias is not None else [None] * self.experts
        parts = zip(x.split(load), weights, biases, strict=True)
        return torch.cat([F.linear(rows, weight, bias) for rows, weight, bias in parts if len(rows)])


class Embedding(nn.Embedding):
    """tokens: (...,) → (..., D)."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__(count, dim)
        self.roles = {"weight": "embedding"}

    if TYPE_CHECKING:

        def __call__(self, tokens: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the storage as it is: `initialise` fills it."""


def roles(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter, by name. A parameter without one is a TypeError."""
    found: dict[str, Role] = {}
    for path, module in model.named_modules():
        _check_initial(module)
        for name, _ in module.named_parameters(recurse=False):
            owned: dict[str, Role] = getattr(module, "roles", {})
            if name not in owned:
                raise TypeError(
                    f"{type(module).__name__} does not say the role of its parameter '{name}': write "
                    f"roles = {{'{name}': 'gain'}} in the class, or bias, input or output"
                )
            _check_role(owned[name])
            found[f"{path}.{name}".lstrip(".")] = owned[name]
    return found


def _check_initial(module: nn.Module) -> None:
    """Raise ValueError where `initial` or `initial_std` names what is no parameter of this very module, and would say
    nothing."""
    for table in ("initial", "initial_std"):
        names = getattr(module, table, None)
        for name in names if isinstance(names, Mapping) else ():
            owner, _, own = name.rpartition(".")
            if owner or isinstance(getattr(module, name, None), nn.Module):
                said = f"`self.{owner or name}.{table} = {{'{own if owner else 'bias'}': …}}`"
                reason = f"`{table}` of {type(module).__name__} names '{name}', which is no parameter of its own"
                raise ValueError(f"{reason}: a module inside it has its own, {said}")


def _check_role(role: str) -> None:
    """Raise ValueError for a role that no rule knows: its parameters would start at zero."""
    if role not in ROLES:
        raise ValueError(f"unknown role '{role}': one of {', '.join(ROLES)}")


def initialise(
    model: nn.Module,
    spec: InitSpec,
    n_layers: int,
    seed: int,
    prefix: str = "",
    factors: Mapping[str, float] | None = None,
) -> None:
    """Fill every parameter of `model` in place.

    prefix: what stands before their names, where it is part of another. factors: on what the rules say, by name.
    """
    by_name = roles(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            path, _, own = name.rpartition(".")
            module, role = model.get_submodule(path), by_name[name]
            factor = (factors or {}).get(name, 1.0)
            if std := factor * _std(module, own, role, spec, n_layers):
                drawn = torch.randn(parameter.shape, generator=generator(seed, prefix + name, spec.stream))
                parameter.copy_(drawn * std)
            else:
                parameter.copy_(_constant(module, own, role, factor))


def _std(module: nn.Module, own: str, role: Role, spec: InitSpec, n_layers: int) -> float:
    """Standard deviation of a module's parameter; 0 for constants. Batched matrices have fan_in last, as single ones
    do."""
    plain = 1 / math.sqrt(module.get_parameter(own).shape[-1])
    declared: dict[str, float] = getattr(module, "initial_std", {})
    if own in declared:
        return declared[own]
    gain: float | None = getattr(module, "init_gain", None)
    if role in ("input", "output") and gain is not None:
        return gain * plain
    if role == "output":
        depth = {"zero": 0.0, "plain": 1.0, "scaled": 1 / math.sqrt(2 * n_layers)}[spec.output]
        return plain * depth * float(getattr(module, "init_factor", 1.0))
    return plain if role in ("embedding", "input") else 0.0


def _constant(module: nn.Module, own: str, role: Role, factor: float) -> Tensor:
    """Initial value of a constant parameter. A gain is scaled together with the offset that its norm adds to it."""
    offset = getattr(module, "gain_offset", 0.0) if role == "gain" else 0.0
    initial = getattr(module, "initial", {}).get(own, 1.0 if role == "gain" else 0.0)
    return factor * (torch.as_tensor(initial) + offset) - offset


def generator(seed: int, name: str, stream: int = 0) -> torch.Generator:
    """Its own for each name, whatever else is drawn."""
    key = f"{seed}/{stream}" if stream else f"{seed}"
    digest = hashlib.sha256(f"{key}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
