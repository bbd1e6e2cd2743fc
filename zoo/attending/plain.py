"""The reference: two matrix products and a softmax."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from zoo.attending.blocks import by_group, by_head
from zoo.attending.needs import Needs
from zoo.attending.scores import scores_of, with_sinks
from zoo.attending.scoring import Scoring
from zoo.attending.visible import Visible
from zoo.kernels.precision import in_float32


def obstacle(needs: Needs) -> str | None:
    """None: the reference supports everything."""
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """Reference attention, in float32 or more, as in fused kernels: rounded scores would add a difference between
    arms."""

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = with_sinks(scores_of(q, k, visible, scoring), scoring).softmax(dim=-1)
        weights = F.dropout(weights[..., : k.shape[2]], scoring.dropout)
        return by_head(by_group(weights, v.shape[1]) @ v, q.shape[1])

    return in_float32(mix, q, k, v).to(v.dtype)
