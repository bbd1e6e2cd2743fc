"""torch's flex_attention: a block mask whose hidden blocks cost nothing, and scores modified inside the kernel, in
float32 and with gradients. Dong et al. 2024, arXiv:2412.05496.

On CUDA one program is compiled per shape. On a CPU and for fake tensors the operation runs uncompiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention as products
from torch.nn import functional as F
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from zoo.attending.visible import Needs, Scoring, Visible
from zoo.kernels.compiling import distinct_code, is_fake
from zoo.kernels.precision import as_autocast_has_it

RANK, KERNEL, HOOKED = 1, True, False
BLOCK = 128
"""Number of queries, and of keys, in a block of the mask."""
LEAST_FEATURES, MOST_FEATURES = 16, 256
"""Smallest head width that the kernel supports, and the largest whose blocks surely fit in a GPU's shared memory."""
WHOLE_TABLE = {"num_stages": 2}
"""Kernel options for a bias per query and key, whose blocks are prefetched like keys and values: with torch's three
stages, blocks of 128 by 128 take 272 KiB of shared memory, more than the 227 KiB of an H200."""
NARROW_TABLE = {"fwd_num_stages": 2, "fwd_BLOCK_N": 64}
"""The same for heads of up to 64 features, whose blocks are the widest: forward and backward of 16 × 12 × 1,024 rows on
an H200 take 1.1 ms, against 4.5 ms with blocks of 128 keys and 1.9 ms with three stages."""
Looks = Callable[..., Tensor]
Along: TypeAlias = tuple[tuple[int, ...], Tensor | None]
"""Axes of (B, H, T, S), and values along them."""


def obstacle(needs: Needs) -> str | None:
    if needs.ordered and needs.bias == "learned":
        return "is not deterministic with a learned bias"
    return "does not support dropout" if needs.dropout else None


def pays(device: str, dtype: torch.dtype, needs: Needs) -> bool:
    """Whether a GPU trains with it: not where scores are plain and the mask is causal or absent, where torch's own
    kernels are faster. Without gradients, every new length would compile a program."""
    fewest, most = needs.features
    runs = device == "cuda" and dtype != torch.float64 and fewest >= LEAST_FEATURES and most <= MOST_FEATURES
    edited = not (needs.whole and needs.plain_scores)
    return runs and edited and needs.gradient and min(needs.queries, needs.keys) >= BLOCK


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    q, k, v = as_autocast_has_it(q, k, v)
    sizes = q.shape[2], k.shape[2]
    blocks = None if visible.everything else visible.once("blocks", lambda: _blocks(visible.mask(), *sizes))
    bias = _axes(scoring.bias)
    eager = not torch.compiler.is_compiling()
    if eager and (not q.is_cuda or is_fake(q)):
        mix: Callable[..., tuple[Tensor, Tensor | None]] = _products
    elif eager:
        mix = _program(q.shape, k.shape, v.shape, q.dtype, bias[0], scoring.softcap, torch.is_grad_enabled())
    else:
        mix = _fused
    out, sums = mix(q, k, v, blocks, bias, scoring.scale, scoring.softcap, scoring.sinks is not None)
    if scoring.sinks is None or sums is None:
        return out
    # A sink adds its exponential to the denominator of the softmax.
    return (out * torch.sigmoid(sums - scoring.sinks[:, None])[..., None]).to(out.dtype)


def _blocks(seen: Tensor, queries: int, keys: int) -> BlockMask:
    """Block mask of seen: (T, S), or (B, 1, T or 1, S). The kernel reads the mask only in partly hidden blocks."""
    axes, table = _axes(seen)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return _looked_up(table, axes, b, h, i, j)

    every = seen.expand(*seen.shape[:-2], queries, keys).reshape(-1, 1, queries, keys)
    padded = F.pad(every, (0, -keys % BLOCK, 0, -queries % BLOCK))
    tiles = padded.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).sum(dim=(3, 5))  # (B or 1, 1, T/128, S/128)
    full = tiles == BLOCK**2
    partial = (tiles > 0) & ~full
    return BlockMask.from_kv_blocks(*_listed(partial), *_listed(full), BLOCK, visible, (queries, keys))


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """Number of true entries in each row of tiles, and the row's indices with those of true entries first."""
    return tiles.sum(dim=-1, dtype=torch.int32), tiles.int().argsort(dim=-1, descending=True, stable=True).int()


def _axes(values: Tensor | None) -> Along:
    """Non-singleton axes of a tensor that broadcasts to (B, H, T, S), and its values along them."""
    if values is None:
        return (), None
    sizes = (1,) * (4 - values.dim()) + tuple(values.shape)
    axes = tuple(axis for axis, size in enumerate(sizes) if size > 1)
    return axes, values.reshape([sizes[axis] for axis in axes])


def _looked_up(table: Tensor | None, axes: tuple[int, ...], *place: Tensor) -> Tensor:
    assert table is not None
    return table[tuple(place[axis] for axis in axes)]


def _edits(bias: Tensor | None, axes: tuple[int, ...], softcap: float | None) -> Looks:
    """(score, its indices in (B, H, T, S), bias) → the score that the softmax reads."""

    def edited(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor, bias: Tensor | None = bias) -> Tensor:
        if bias is not None:
            score = score + _looked_up(bias, axes, b, h, i, j)
        return score if softcap is None else softcap * torch.tanh(score / softcap)

    return edited


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: BlockMask | None,
    bias: Along,
    scale: float,
    softcap: float | None,
    with_sums: bool,
) -> tuple[Tensor, Tensor | None]:
    """The output and, if `with_sums`, the logsumexp of each query's scores: (B, H, T)."""
    axes, table = bias
    edited = _edits(table, axes, softcap)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return edited(score, b, h, i, j)

    table_is_read = q.is_cuda and {2, 3} <= {*axes}
    options = (NARROW_TABLE if q.shape[-1] <= 64 else WHOLE_TABLE) if table_is_read else None
    found: Any = flex_attention(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=blocks,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        kernel_options=cast(Any, options),
        return_aux=AuxRequest(lse=True) if with_sums else None,
    )
    return (found[0], found[1].lse) if with_sums else (found, None)


@cache
def _program(*shape: object) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """`_fused`, compiled for one shape. Each program has its own code object, so torch's recompilation limit is never
    reached."""
    program: Callable[..., Any] = torch.compile(
        distinct_code(cast(FunctionType, _fused)), dynamic=False, fullgraph=True
    )
    return program


def _products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: BlockMask | None,
    bias: Along,
    scale: float,
    softcap: float | None,
    with_sums: bool,
) -> tuple[Tensor, Tensor | None]:
    """`_fused` by torch's own uncompiled definition of the operation, forward and backward."""
    if blocks is None:
        sizes = q.shape[2], k.shape[2]
        blocks = _blocks(torch.ones(sizes, dtype=torch.bool, device=q.device), *sizes)
    axes, table = bias
    captured = () if table is None else (table,)
    out, sums, _ = products(q, k, v, _edits(None, axes, softcap), blocks.as_tuple(), scale, {}, captured, ())
    return out, sums * math.log(2)  # torch's definition has log2 of the sums
