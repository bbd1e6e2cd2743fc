"""Requirements of an attention call, without its tensors, by which a backend is chosen."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from zoo.attending.visible import Scoring, Visible


class Needs(NamedTuple):
    """queries, keys: their numbers. features: widths of a head's queries and values, the smaller first.

    aligned, everything: as in `Visible`. gradient: whether a backward pass follows. ordered: whether sums must be
    deterministic, in a fixed order.
    """

    queries: int
    keys: int
    features: tuple[int, int]
    aligned: bool = True
    everything: bool = False
    window: int | None = None
    pattern: bool = False
    bias: Literal["none", "constant", "learned"] = "none"
    softcap: bool = False
    sinks: bool = False
    dropout: bool = False
    gradient: bool = False
    ordered: bool = False

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Needs:
        bias = scoring.bias
        return cls(
            queries=q.shape[2],
            keys=k.shape[2],
            features=(min(q.shape[3], v.shape[3]), max(q.shape[3], v.shape[3])),
            aligned=visible.aligned,
            everything=visible.everything,
            window=visible.window,
            pattern=visible.pattern is not None,
            bias="none" if bias is None else "learned" if bias.requires_grad else "constant",
            softcap=scoring.softcap is not None,
            sinks=scoring.sinks is not None,
            dropout=scoring.dropout > 0,
            gradient=torch.is_grad_enabled() and q.requires_grad,
            ordered=torch.are_deterministic_algorithms_enabled(),
        )

    @property
    def plain_scores(self) -> bool:
        """Whether scores are QKᵀ · scale and nothing else."""
        return self.bias == "none" and not self.softcap and not self.sinks

    @property
    def whole(self) -> bool:
        """Whether each query sees all keys, or all keys up to itself."""
        near = self.window is not None and self.window < self.queries
        return (self.aligned or self.everything) and not near and not self.pattern


class Backend(Protocol):
    """A module that computes attention."""

    RANK: int
    """Place among the backends, the fastest first: the first that can serve a call, and pays, does."""
    KERNEL: bool
    """Whether it runs as one fused kernel on a GPU and never holds all scores."""
    HOOKED: bool
    """Whether torch's hook can replace its kernel with FlashAttention-3."""

    def obstacle(self, needs: Needs) -> str | None:
        """Reason why the backend cannot serve the call, as a phrase after its name; None if it can."""

    def pays(self, device: str, dtype: torch.dtype, needs: Needs) -> bool:
        """Whether it is faster than the backends after it on this kind of device, for a call that it can serve."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """Attention of one backend; see `zoo.attend.attend`."""
