"""Expert feed-forward layers. Each runs only on the tokens sent to it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.ffns._activations import Activation
from zoo.ffns._grouped import can_group, grouped_product
from zoo.init import ExpertLinear
from zoo.kernels.tracing import is_fake


class GroupedLinear(ExpertLinear):
    """`ExpertLinear` whose products one grouped kernel computes, if the load of each expert is a tensor."""

    def forward(self, x: Tensor, load: list[int] | Tensor) -> Tensor:
        return super().forward(x, load) if isinstance(load, list) else grouped_product(x, self.weight, self.bias, load)


class Experts(nn.Module):
    """y_n = Σ_j w_nj · W_down,e act(W_up,e x_n) with e = chosen_nj, or Σ_j W_down,e act(W_up,e (w_nj · x_n)) if
    `weights_inputs`. With a gated activation, act also reads W_gate,e x_n.

    rows: (N, D), chosen and weights: (N, k) → (N, D). Rows are sorted by expert, so that each expert is one matrix
    product over its rows: N·k rows in total, as `cost` declares. On a GPU a grouped kernel computes all products at
    once, where available (`zoo.ffns._grouped`). Rows sent to the `beside` experts, which have higher indices, are
    ignored here.
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
            rank = torch.arange(order.shape[0], device=order.device) - first.repeat_interleave(
                load
            )  # within its expert
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
        at = torch.full_like(places, order.shape[0]).scatter(
            0, order, torch.arange(order.shape[0], device=order.device)
        )
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
