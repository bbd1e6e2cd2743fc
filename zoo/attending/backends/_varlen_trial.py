"""`python -m zoo.attending.backends._varlen_trial`: whether torch's varlen_attn computes windows on this machine's GPU,
forward and backward, as the plain backend does."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.attend import attend, attention_backend
from zoo.attending.visible import Scoring, Visible
from zoo.kernels.trial import WRONG, agree


class Case(NamedTuple):
    """Shape of a trial: kv_heads of 4 heads, features of a head, tokens of a text, and the window."""

    kv_heads: int
    features: int
    length: int
    window: int


CASES = (Case(4, 64, 256, 32), Case(1, 64, 200, 7), Case(2, 128, 333, 64), Case(4, 32, 64, 2), Case(4, 64, 96, 500))
"""Lengths and windows that are no multiples of the kernel's blocks, windows of two tokens and of more than the text."""
TOLERANCE = 0.03
"""Largest relative error of sums of products that are rounded to bfloat16."""


def try_kernel(device: str) -> bool:
    """Whether outputs and gradients agree, with freed memory full of NaN."""
    return all(_agrees(case, device) for case in CASES)


def _agrees(case: Case, device: str) -> bool:
    draw = torch.Generator().manual_seed(0)
    sizes = [(2, heads, case.length, case.features) for heads in (4, case.kv_heads, case.kv_heads, 4)]
    *qkv, gradient = (torch.randn(size, generator=draw).to(device, torch.bfloat16) for size in sizes)
    expected = _results("plain", case, [each.float() for each in qkv], gradient.float())
    return agree(lambda: _results("varlen", case, qkv, gradient), expected, device, TOLERANCE)


def _results(backend: str, case: Case, qkv: list[Tensor], gradient: Tensor) -> list[Tensor]:
    """The output, and the gradients of queries, keys and values, in float32."""
    index = torch.arange(case.length, device=gradient.device)
    given = [each.clone().requires_grad_() for each in qkv]
    with attention_backend(backend):
        out = attend(given[0], given[1], given[2], Visible(index, index, case.window), Scoring(case.features**-0.5))
    return [each.float() for each in (out.detach(), *torch.autograd.grad(out, given, gradient))]


if __name__ == "__main__":
    sys.exit(0 if try_kernel("cuda") else WRONG)
