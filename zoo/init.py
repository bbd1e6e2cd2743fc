"""Initial values of all parameters, by role.

| role      | parameters                                           | initial value                             |
|-----------|------------------------------------------------------|-------------------------------------------|
| embedding | token table                                          | N(0, 1/D)                                 |
| input     | projections that read the residual stream            | N(0, 1/fan_in)                            |
| output    | projections that write to the residual stream        | by `InitSpec.output`                      |
| head      | untied head                                          | zero                                      |
| gain      | norm gains and other multipliers                     | one, or what the module's `initial` says  |
| bias      | biases and other offsets                             | zero, or what the module's `initial` says |

A module's `initial` maps parameter names to constants or tensors; its `initial_std` maps them to standard deviations of
draws around zero.

A tied head starts with small logits. With gains of one, the token just read would get a logit of logit_scale·√D, since
the stream is still mostly that token's own row of the table. An untrained model would start 2 nats above log V, and
the excess would differ between arms that mix other things into the stream. So the gain of the norm before a tied head
starts at `InitSpec.tied_head` / (logit_scale·√D), at most 1: that logit is then at most `tied_head`, and the others are
N(0, tied_head²/D). The gain is learned like any other and soon leaves its initial value.
If no norm has such a gain to itself (norms without gains, no norm before the head, or layers that share it), the token
table takes the factor instead, times `UNNORMED` if nothing normalises the stream, which branches make larger than one.
An untied head starts at zero. `tests/zoo/test_start.py` checks that models with a normalised stream start at log V.

A branch under DeepNorm sets its own standard deviation in place of the rule's (see `zoo.residuals`).

Each tensor has its own generator, keyed by seed and parameter name, so models that share a parameter's name and shape
share its initial values, whatever else differs. `InitSpec.stream` selects other, equivalent draws for the same seed: an
edit that changes only chance, to test a comparison with.
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
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec
from zoo.settings.field_tags import Supports

Role = Literal["embedding", "input", "output", "head", "gain", "bias"]

ROLES: tuple[Role, ...] = get_args(Role)

UNNORMED = 0.5
"""Further factor on the initial logits of a tied head that reads an unnormalised stream."""


class InitSpec(Spec):
    """Initial output projections: `zero`; `plain` N(0, 1/fan_in); `scaled` N(0, 1/(2L·fan_in)), after GPT-2."""

    supports: ClassVar[Operations] = EVERY_OPERATION

    output: Literal["zero", "plain", "scaled"] = "scaled"
    """Initial output projections, W_o and W_down: `zero`; `plain`, N(0, 1/fan_in); `scaled`, N(0, 1/(2L·fan_in))."""
    stream: Annotated[NonNegativeInt, Supports(*EVERY_OPERATION)] = 0
    """Number of the draw, one of many equivalent ones for the same seed."""
    tied_head: PositiveFloat | None = 0.5
    """Upper bound on a tied head's initial logit of the token just read; null for gains of one."""


class Linear(nn.Linear):
    """x: (..., in) → (..., out), with a role for its weight."""

    init_gain: float | None = None
    """Standard deviation times √fan_in that a residual sets in place of the rule's; None for the rule."""
    init_factor: float = 1.0
    """Factor that a residual sets on the rule's standard deviation of an output projection."""
    initial: Mapping[str, float | Tensor]
    """Constants that a mixer sets in place of the rule's, by parameter name."""
    initial_std: Mapping[str, float]
    """Standard deviations that a mixer sets in place of the rule's, by parameter name; 0 for a constant."""

    def __init__(self, dim_in: int, dim_out: int, *, bias: bool = False, role: Role, values: bool = False) -> None:
        """role: the weight's, `input` or `output` in a layer; a bias has role `bias`. values: whether this is a mixer's
        value projection, which DeepNorm scales. Raises ValueError for an unknown role."""
        super().__init__(dim_in, dim_out, bias=bias)
        _check_role(role)
        self.roles = {"weight": role, "bias": "bias"}
        self.values = values

    if TYPE_CHECKING:  # torch types the result of a call as Any

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the storage as it is: `initialise` fills it."""


class ExpertLinear(nn.Module):
    """One matrix per expert. x: (M, in), sorted by expert, with load[e] rows for expert e → (M, out)."""

    init_gain: float | None = None
    init_factor: float = 1.0
    """Both as in `Linear`."""

    values: ClassVar[bool] = False
    """No mixer's value projection is made of experts."""

    def __init__(self, experts: int, dim_in: int, dim_out: int, *, bias: bool = False, role: Role) -> None:
        super().__init__()
        _check_role(role)
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts, dim_out, dim_in))
        self.bias = nn.Parameter(torch.empty(experts, dim_out)) if bias else None
        self.roles = {"weight": role, "bias": "bias"}

    def forward(self, x: Tensor, load: list[int]) -> Tensor:
        """load: rows of each expert."""
        # The gradient of unbind is one stack; indexing would allocate a gradient of all experts for each expert.
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
    """Role of every parameter, by name. Raises TypeError for a parameter without a role, ValueError for an unknown
    one."""
    found: dict[str, Role] = {}
    for path, module in model.named_modules():
        _check_initial(module)
        for name, _ in module.named_parameters(recurse=False):
            owned: dict[str, Role] = getattr(module, "roles", {})
            if name not in owned:
                raise TypeError(
                    f"{type(module).__name__}: parameter '{name}' has no role: set "
                    f"roles = {{'{name}': 'gain'}} in the class, or bias, input or output"
                )
            _check_role(owned[name])
            found[f"{path}.{name}".lstrip(".")] = owned[name]
    return found


def _check_initial(module: nn.Module) -> None:
    """Raise ValueError if `initial` or `initial_std` names anything but a parameter of the module itself, which would
    have no effect."""
    for table in ("initial", "initial_std"):
        names = getattr(module, table, None)
        for name in names if isinstance(names, Mapping) else ():
            owner, _, own = name.rpartition(".")
            if not owner and not hasattr(module, name):
                hint = did_you_mean(name, [each for each, _ in module.named_parameters(recurse=False)])
                raise ValueError(f"`{table}` of {type(module).__name__} names '{name}', which it does not have{hint}")
            if owner or isinstance(getattr(module, name, None), nn.Module):
                said = f"`self.{owner or name}.{table} = {{'{own if owner else 'bias'}': …}}`"
                reason = f"`{table}` of {type(module).__name__} names '{name}', which is not a parameter of its own"
                raise ValueError(f"{reason}: set it in the submodule, {said}")


def _check_role(role: str) -> None:
    """Raise ValueError for an unknown role, whose parameters would silently start at zero."""
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

    prefix: put before parameter names if `model` is part of another. factors: on initial values, by parameter name.
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
            else:  # `factor` scales a gain together with the offset that its norm adds
                offset = getattr(module, "gain_offset", 0.0) if role == "gain" else 0.0
                initial = getattr(module, "initial", {}).get(own, 1.0 if role == "gain" else 0.0)
                parameter.copy_(factor * (torch.as_tensor(initial) + offset) - offset)


@torch.no_grad()
def project(model: nn.Module) -> None:
    """Normalise in place the columns of matrices (out, in) that write to the stream, and the rows of all other
    matrices, tables and heads. Loshchilov et al. 2024 (nGPT), arXiv:2410.01131."""
    for module in model.modules():
        if isinstance(module, Linear | ExpertLinear | Embedding):
            across = -2 if module.roles["weight"] == "output" else -1
            module.weight.copy_(F.normalize(module.weight, dim=across))


def _std(module: nn.Module, own: str, role: Role, spec: InitSpec, n_layers: int) -> float:
    """Initial standard deviation of a module's parameter; 0 for constants. fan_in is the last axis, of batched matrices
    too."""
    plain = 1 / math.sqrt((1, *module.get_parameter(own).shape)[-1])
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


def generator(seed: int, name: str, stream: int = 0) -> torch.Generator:
    """Random generator of one parameter name, independent of all other draws."""
    key = f"{seed}/{stream}" if stream else f"{seed}"
    digest = hashlib.sha256(f"{key}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
