"""Expert feed-forward layers, each run on the tokens sent to it and no others."""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor, nn

from zoo.ffns._activations import Activation
from zoo.init import ExpertLinear
from zoo.kernels.grouped import can_group
from zoo.kernels.tracing import is_fake


class Experts(nn.Module):
    """y_n = Σ_j w_nj · W_down,e act(W_up,e x_n) with e = chosen_nj, or Σ_j W_down,e act(W_up,e (w_nj · x_n)) where
    weights are on the inputs; gated where the activation is.

    rows: (N, D), chosen and weights: (N, k) → (N, D). Rows are sorted by expert, so that each expert is one product
    over the rows that chose it: N·k rows in all, which is what `cost` declares. On a GPU one kernel does all products,
    where there is one (`zoo.kernels.grouped`). Rows sent to experts `beside` these, of higher numbers, are none of
    theirs.
    """

    weights_inputs: bool = False
    beside: int = 0
    """Number of other experts that rows can be sent to."""
    share: float = 1.0
    """Share of the assignments that these experts get of a balanced load."""

    def __init__(
        self, experts: int, d_model: int, d_ff: int, activation: Activation, *, gated: bool, bias: bool, dropout: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate = ExpertLinear(experts, d_model, d_ff, bias=bias, role="input") if gated else None
        self.up = ExpertLinear(experts, d_model, d_ff, bias=bias, role="input")
        self.down = ExpertLinear(experts, d_ff, d_model, bias=bias, role="output")
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, chosen: Tensor, weights: Tensor, capacity: int | None = None) -> Tensor:
        """capacity: how many rows an expert takes, those that come first in the batch; the others lose its share."""
        k = chosen.shape[-1]
        places = chosen.flatten()
        # Stable, so that within an expert rows keep their order, and what a row loses to capacity depends on earlier
        # rows only.
        order = places.argsort(stable=True)
        load = load_of(places, self.up.experts + self.beside)
        if capacity is not None:
            order, load = _within(capacity, order, load)
        if self.beside:
            load = load[: self.up.experts]
            order = order[: sum(sizes_on_host(load, round(self.share * len(places))))]
        sent, share = rows[order // k], weights.flatten()[order, None].to(rows.dtype)
        if len(order) == 0:
            weighted = sent
        else:
            weighted = self._run(sent * share, load) if self.weights_inputs else self._run(sent, load) * share
        # Each row's k results, back in its own order: a gather, whose sum is the same at every run on every device.
        at = torch.full_like(places, order.shape[0]).scatter(
            0, order, torch.arange(order.shape[0], device=order.device)
        )
        if capacity is not None or self.beside:
            weighted = torch.cat((weighted, weighted.new_zeros(1, weighted.shape[-1])))
        out: Tensor = weighted[at].unflatten(0, (-1, k)).sum(1)
        return out

    def each(self, rows: Tensor) -> Tensor:
        """rows: (E, M, D), M for each expert → (E, M, D)."""
        count, many = rows.shape[:2]
        load = rows.new_full((count,), many, dtype=torch.long)
        flat = rows.flatten(0, 1)
        given = self._run(flat, load if can_group(flat, self.up.weight) else [many] * count)
        out: Tensor = given.unflatten(0, (count, many))
        return out

    def _run(self, rows: Tensor, load: Tensor | list[int]) -> Tensor:
        """rows: (M, D), the first load[0] of them for expert 0, and so on → (M, D)."""
        if not isinstance(load, list) and not can_group(rows, self.up.weight):
            load = sizes_on_host(load, len(rows))
        up = self.up(rows, load)
        hidden = self.activation(up) if self.gate is None else self.activation(self.gate(rows, load), up)
        out: Tensor = self.down(self.dropout(hidden), load)
        return out


def sizes_on_host(load: Tensor, rows: int) -> list[int]:
    """`load` on the host. Where there is only its shape, as when memory is foreseen, an even one."""
    if is_fake(load):
        return [(rows + expert) // len(load) for expert in range(len(load))]
    return load.tolist()


def load_of(chosen: Tensor, experts: int) -> Tensor:
    """Number of tokens sent to each expert: (E,). bincount would read the largest index on the host."""
    chosen = chosen.flatten()
    return chosen.new_zeros(experts).scatter_add(0, chosen, torch.ones_like(chosen))


def _within(capacity: int, order: Tensor, load: Tensor) -> tuple[Tensor, Tensor]:
    """The places in `order`, sorted by expert, that find room, and the load that is left."""
    first = load.cumsum(0) - load
    rank = torch.arange(order.shape[0], device=order.device) - first.repeat_interleave(load)
    return order[rank < capacity], load.clamp(max=capacity)


def expert_capacity(factor: float, tokens: int, top_k: int, experts: int) -> int:
    """⌈factor · N·k/E⌉: the load of a perfectly balanced expert times a factor."""
    return ceil(factor * tokens * top_k / experts)
