"""Forget gates on the scores of softmax attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.conv import on_text
from zoo.init import Linear
from zoo.site import ForwardPass


class ForgetGate(nn.Module):
    """x: (B, T, D) → log f: (B, H, T, 1), f = σ(W x + b), one number per head; 0 on padding."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.project = Linear(d_model, heads, bias=True, role="input")

    def forward(self, x: Tensor, step: ForwardPass) -> Tensor:
        raw = self.project(x)
        logs = F.logsigmoid(raw.to(torch.promote_types(raw.dtype, torch.float32)))
        out: Tensor = on_text(logs, step).transpose(1, 2)[..., None]
        return out


def decay_bias(logs: Tensor, places: Tensor, step: ForwardPass) -> Tensor:
    """log f: (B, H, S, 1) of keys at places (S,), the last T of which are the step's → (B, H, T, S): the sum of log f
    over the tokens after key j, up to query i. Keys after the query get a number without meaning, behind the mask."""
    logs = logs[..., 0].to(torch.promote_types(logs.dtype, torch.float32))
    if places is step.index:
        total = logs.cumsum(dim=-1)
        return total[..., :, None] - total[..., None, :]
    # A rolling buffer holds its tokens in any order.
    order = places.argsort()
    total = logs[..., order].cumsum(dim=-1)
    queries = total[..., total.shape[-1] - step.index.shape[0] :]
    return queries[..., :, None] - total[..., order.argsort()][..., None, :]
