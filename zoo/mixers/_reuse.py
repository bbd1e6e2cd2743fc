"""Reuse of a lower layer's keys and values in place of a layer's own.

A layer with `reuse_kv` projects only queries and attends to the keys and values of the nearest layer below it that has
its own, with the same heads, features, positions, window and sparsity. It caches nothing. A pattern of blocks says
which layers reuse: every second one in Cross-Layer Attention (Brandon et al. 2024, arXiv:2405.12981; Hunyuan-Large,
arXiv:2411.02265); the upper half, all from one layer, in YOCO (Sun et al. 2024, arXiv:2405.05254); the last layers,
from the last full or the last windowed layer below them, in Gemma 3n.

    block: {mixer: {kind: attention}}
    blocks: {reader: {mixer.reuse_kv: true}}
    pattern: [block, reader]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from zoo.errors import SpecError
from zoo.site import ForwardPass

if TYPE_CHECKING:
    from zoo.mixers import Mixer


def lend(step: ForwardPass, kv: str, keys: Tensor, values: Tensor, places: Tensor) -> None:
    """Store keys, values: (B, K, S, d), and places: (S,), under `kv` for layers above; replaces a lower layer's."""
    if step.lent is not None:
        step.lent[kv] = keys, values, places


def borrowed(step: ForwardPass, kv: str) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and places of the nearest layer below with this `kv`. Raises ValueError outside a model's pass."""
    if step.lent is None:
        raise ValueError("a layer with reuse_kv reads a lower layer's keys and values: run it inside its model")
    return step.lent[kv]


def check_reuse(conv: int | None, value_residual: bool, bias: Sequence[str]) -> None:
    """Raise SpecError for settings of keys and values, which a layer with `reuse_kv` does not have."""
    for name, given in (("conv", conv), ("value_residual", value_residual), ("bias", {"k", "v"} & set(bias))):
        if given:
            raise SpecError(name, "with reuse_kv, keys and values are a lower layer's, whose settings apply")


def check_lenders(mixers: Sequence[tuple[str, Mixer]]) -> None:
    """Raise SpecError if a layer reuses keys and values that no layer below has. mixers: path and mixer per layer."""
    if not any(mixer.borrows for _, mixer in mixers):
        return
    lent = set()
    for where, mixer in mixers:
        if not mixer.borrows:
            lent.add(mixer.kv)
        elif mixer.kv not in lent:
            reason = (
                "no lower layer has its own keys and values with the same kind, heads, positions, window and sparsity"
            )
            raise SpecError(f"{where}.mixer.reuse_kv", reason)
