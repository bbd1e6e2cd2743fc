"""Experts: feed-forward layers, each of which runs only on the tokens sent to it, and experts without a feed-forward
layer: zero, copy and constant.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import Operation
from zoo.ffns import Ffn
from zoo.ffns._activations import Activation
from zoo.ffns._grouped import can_group, grouped_product
from zoo.init import ExpertLinear, Linear
from zoo.kernels.compiling import is_fake
from zoo.settings.axis import is_off
from zoo.settings.field_tags import MaxInTests, Supports


class GroupedLinear(ExpertLinear):
    """`ExpertLinear` whose products one grouped kernel computes, if the load of each expert is a tensor."""

    def forward(self, x: Tensor, load: list[int] | Tensor) -> Tensor:
        return super().forward(x, load) if isinstance(load, list) else grouped_product(x, self.weight, self.bias, load)


class Experts(nn.Module):
    """y_n = Σ_j w_nj · W_down,e act(W_up,e x_n) with e = chosen_nj, or Σ_j W_down,e act(W_up,e (w_nj · x_n)) if
    `weights_inputs`. With a gated activation, act also reads W_gate,e x_n.

    rows: (N, D), chosen and weights: (N, k) → (N, D). Rows are sorted by expert, so that each expert is one matrix
    product over its rows: N·k rows in total, as `cost` declares. On a GPU one kernel computes all products, if it fits
    (`zoo.ffns._grouped`). Rows sent to the `beside` experts, which have higher indices, are ignored here.
    """

    weights_inputs: bool = False
    beside: int = 0
    """Number of experts without an FFN that rows can also be sent to."""
    share: float = 1.0
    """Share of all assignments that these experts get if the load is balanced."""

    def __init__(
        self, experts: int, d_model: int, d_ff: int, activation: Activation, *, gated: bool, bias: bool, dropout: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate = GroupedLinear(experts, d_model, d_ff, bias=bias, role="input") if gated else None
        self.up = GroupedLinear(experts, d_model, d_ff, bias=bias, role="input")
        self.down = GroupedLinear(experts, d_ff, d_model, bias=bias, role="output")
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, chosen: Tensor, weights: Tensor, capacity: int | None = None) -> Tensor:
        """capacity: maximum rows per expert, the first ones of the batch; further rows get nothing from that expert."""
        k = chosen.shape[-1]
        places = chosen.flatten()
        # Stable, so that rows keep their order within an expert, and whether capacity drops a row depends on earlier
        # rows only.
        order = places.argsort(stable=True)  # (N·k,) assignments, by expert
        load = load_of(places, self.up.experts + self.beside)
        if capacity is not None:
            first = load.cumsum(0) - load
            rank = torch.arange(len(order), device=order.device) - first.repeat_interleave(load)  # within its expert
            order, load = order[rank < capacity], load.clamp(max=capacity)
        if self.beside:
            load = load[: self.up.experts]
            order = order[: sum(sizes_on_host(load, round(self.share * len(places))))]
        sent, share = rows[order // k], weights.flatten()[order, None].to(rows.dtype)
        if len(order) == 0:
            weighted = sent
        else:
            weighted = self._run(sent * share, load) if self.weights_inputs else self._run(sent, load) * share
        # Bring each row's k results back into its own order. A gather, since its sum is deterministic on every device.
        # `at` is the inverse of `order`; dropped assignments point at the row of zeros appended below.
        at = torch.full_like(places, len(order)).scatter(0, order, torch.arange(len(order), device=order.device))
        if capacity is not None or self.beside:
            weighted = torch.cat((weighted, weighted.new_zeros(1, weighted.shape[-1])))
        out: Tensor = weighted[at].unflatten(0, (-1, k)).sum(1)
        return out

    def each(self, rows: Tensor) -> Tensor:
        """rows: (E, M, D), M rows per expert → (E, M, D)."""
        count, many = rows.shape[:2]
        load = rows.new_full((count,), many, dtype=torch.long)
        flat = rows.flatten(0, 1)
        given = self._run(flat, load if can_group(flat, self.up.weight) else [many] * count)
        out: Tensor = given.unflatten(0, (count, many))
        return out

    def _run(self, rows: Tensor, load: Tensor | list[int]) -> Tensor:
        """rows: (M, D), sorted by expert, load[e] rows for expert e → (M, D)."""
        if not isinstance(load, list) and not can_group(rows, self.up.weight):
            load = sizes_on_host(load, len(rows))
        up = self.up(rows, load)
        hidden = self.activation(up) if self.gate is None else self.activation(self.gate(rows, load), up)
        out: Tensor = self.down(self.dropout(hidden), load)
        return out


def sizes_on_host(load: Tensor, rows: int) -> list[int]:
    """`load` as a list on the host. For a fake tensor, as when memory is predicted, an even load of `rows` rows."""
    if is_fake(load):
        return [(rows + expert) // len(load) for expert in range(len(load))]
    return load.tolist()


def load_of(chosen: Tensor, experts: int) -> Tensor:
    """Number of tokens sent to each expert: (E,). Not bincount, which synchronises to read the largest index."""
    chosen = chosen.flatten()
    return chosen.new_zeros(experts).scatter_add(0, chosen, torch.ones_like(chosen))


class Routed(Ffn):
    """Base of layers that route tokens to experts, with an FFN or without."""

    experts: Annotated[PositiveInt, MaxInTests(8)] = 8
    """E: number of routed experts with an FFN; shared experts are not counted."""
    top_k: Annotated[PositiveInt, MaxInTests(2)] = 2
    """k: number of experts that a token is sent to."""
    zero_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that a token can be sent to with output zero, E(x) = 0 (MoE++, arXiv:2410.07348)."""
    copy_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that return their input, E(x) = x (MoE++; LongCat-Flash, arXiv:2509.01322)."""
    constant_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that mix their input with a learned vector v, E(x) = α₁ x + α₂ v,
    α = softmax(W_c x) (MoE++)."""
    tau: PositiveFloat = Field(default=1.0, exclude_if=lambda tau: tau == 1.0)
    """τ: target load of an expert with an FFN, relative to one without (MoE++). FLOPs are declared for that load; a
    router that deviates from it uses more or fewer."""

    @property
    def zero_compute(self) -> int:
        """Number of routed experts without an FFN."""
        return self.zero_experts + self.copy_experts + self.constant_experts

    @property
    def choices(self) -> int:
        """Number of experts that a token can be sent to."""
        return self.experts + self.zero_compute

    @property
    def even_load(self) -> list[float]:
        """Each expert's share of the assignments if the load is balanced."""
        total = self.tau * self.experts + self.zero_compute
        return [self.tau / total] * self.experts + [1 / total] * self.zero_compute

    @property
    def ffns_per_token(self) -> float:
        """Mean number of experts with an FFN that a token is sent to, if the load is balanced."""
        if not self.zero_compute:
            return self.top_k
        return self.top_k * self.tau * self.experts / (self.tau * self.experts + self.zero_compute)


class ZeroComputeExperts(nn.Module):
    """Σ_j w_j E_j(x) over the chosen experts j that have no FFN: E(x) = 0, E(x) = x, or E(x) = α₁ x + α₂ v with
    α = softmax(W_c x). Jin et al. 2024 (MoE++), arXiv:2410.07348, eq. 3 to 5.

    rows: (N, D), chosen and weights: (N, k) → (N, D). Expert indices: those with an FFN, then zero, copy, constant. W_c
    of every constant expert reads all rows, chosen or not, which costs only two outputs per row and expert.
    """

    roles: ClassVar = {"constants": "bias"}
    initial_std: ClassVar = {"constants": 0.02}

    def __init__(self, first: int, zeros: int, copies: int, constants: int, features: int) -> None:
        super().__init__()
        self.copies = range(first + zeros, first + zeros + copies)
        self.first_constant = self.copies.stop
        self.shares = Linear(features, 2 * constants, role="input") if constants else None
        """W_c: (2C, D)."""
        self.constants = nn.Parameter(torch.zeros(constants, features)) if constants else None
        """v: (C, D)."""

    def forward(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        copied = ((chosen >= self.copies.start) & (chosen < self.copies.stop)) * weights
        out = copied.sum(-1, keepdim=True).to(rows.dtype) * rows
        if self.constants is None or self.shares is None:
            return out
        number = torch.arange(len(self.constants), device=chosen.device) + self.first_constant
        weight = ((chosen[..., None] == number) * weights[..., None]).sum(-2)  # (N, C)
        kept, replaced = self.shares(rows).unflatten(-1, (-1, 2)).softmax(-1).unbind(-1)  # α₁, α₂: (N, C)
        weight = weight.to(kept.dtype)
        out = out + (weight * kept).sum(-1, keepdim=True) * rows
        mixed: Tensor = out + (weight * replaced) @ self.constants.to(kept.dtype)
        return mixed
