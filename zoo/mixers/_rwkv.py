"""Sizes common to the RWKV mixers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from zoo.errors import SpecError
from zoo.mixers._linear import check_width


class Sized(Protocol):
    """A spec with heads that together have d_model features."""

    @property
    def heads(self) -> int: ...
    @property
    def head_dim(self) -> int | None: ...


def sizes_in(spec: Sized, d_model: int, shares: Mapping[str, int]) -> dict[str, int]:
    """Resolved `head_dim` and ranks. A null rank becomes d_model divided by its entry in `shares`, rounded down, at
    least 8. Raises SpecError unless the heads have d_model features together."""
    check_width(spec.heads, d_model, "heads")
    head_dim = d_model // spec.heads
    if spec.head_dim not in (None, head_dim):
        raise SpecError("head_dim", f"must be d_model / heads ({head_dim}), not {spec.head_dim}")
    return {"head_dim": head_dim} | {name: getattr(spec, name) or max(8, d_model // of) for name, of in shares.items()}
