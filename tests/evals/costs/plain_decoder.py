"""A decoder as anybody would write it, with nothing of ours: pre-norm, grouped heads, windows, RoPE, SwiGLU or experts.

Attention and the products of experts are operators of their own, as on a GPU, with shapes and no kernels: FLOPs are
those of the pairs that a query sees, and of the rows that experts are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula


@dataclass(frozen=True)
class Shape:
    """A model and its batch. experts, top_k: of each layer; none is a dense one."""

    d: int
    layers: int
    vocabulary: int
    context: int
    batch: int
    heads: int
    kv_heads: int
    d_ff: int
    window: int | None = None
    experts: int = 0
    top_k: int = 2

    @property
    def pairs(self) -> int:
        """Keys that all queries of a row see together."""
        return sum(min(place + 1, self.window or self.context) for place in range(self.context))


@torch.library.custom_op("plain::attention", mutates_args=())
def attention(q: Tensor, k: Tensor, v: Tensor, pairs: int) -> Tensor:
    raise NotImplementedError


@torch.library.custom_op("plain::attention_backward", mutates_args=())
def attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, pairs: int
) -> tuple[Tensor, Tensor, Tensor]:
    raise NotImplementedError


@torch.library.custom_op("plain::products", mutates_args=())
def products(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    raise NotImplementedError


@torch.library.custom_op("plain::products_backward", mutates_args=())
def products_backward(gradient: Tensor, rows: Tensor, weight: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    raise NotImplementedError


attention.register_fake(lambda q, k, v, pairs: torch.empty_like(q))
attention_backward.register_fake(lambda g, q, k, v, out, pairs: tuple(map(torch.empty_like, (q, k, v))))
products.register_fake(lambda rows, weight, ends: rows.new_empty(len(rows), weight.shape[1]))
products_backward.register_fake(lambda g, rows, weight, ends: (torch.empty_like(rows), torch.empty_like(weight)))


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, ctx.pairs = inputs
    ctx.save_for_backward(q, k, v, output)


def _keep_products(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


attention.register_autograd(
    lambda ctx, gradient: (*attention_backward(gradient, *ctx.saved_tensors, ctx.pairs), None),
    setup_context=_keep_attention,
)
products.register_autograd(
    lambda ctx, gradient: (*products_backward(gradient, *ctx.saved_tensors), None), setup_context=_keep_products
)


@register_flop_formula(torch.ops.plain.attention)
def _(q: Any, k: Any, v: Any, pairs: int, *_: Any, **__: Any) -> int:
    """QKᵀ and PV."""
    batch, heads, _, features = q
    return 2 * 2 * batch * heads * pairs * features


@register_flop_formula(torch.ops.plain.attention_backward)
def _(gradient: Any, q: Any, k: Any, v: Any, out: Any, pairs: int, *_: Any, **__: Any) -> int:
    """QKᵀ again, and the gradients of P, V, Q and K."""
    batch, heads, _, features = q
    return 5 * 2 * batch * heads * pairs * features


@register_flop_formula(torch.ops.plain.products)
def _(rows: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * rows[0] * weight[1] * weight[2]


@register_flop_formula(torch.ops.plain.products_backward)
def _(gradient: Any, rows: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * 2 * rows[0] * weight[1] * weight[2]


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, features = shape, shape.d // shape.heads
        self.q, self.o = (nn.Linear(shape.d, shape.d, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(shape.d, shape.kv_heads * features, bias=False) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 2 * cos.shape[-1])).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = (_turned(part, cos, sin) for part in (q, k))
        return self.o(attention(q, k, v, self.shape.pairs).transpose(1, 2).flatten(2))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.float().chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(shape.d, shape.d_ff, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.d_ff, shape.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top_k, sizes = shape.top_k, (shape.experts, shape.d_ff, shape.d)
        self.router = nn.Linear(shape.d, shape.experts, bias=False)
        self.gate, self.up = (nn.Parameter(torch.empty(sizes)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.d, shape.d_ff))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        scores, chosen = self.router(rows).float().topk(self.top_k, dim=-1)
        order = chosen.flatten().argsort(stable=True)
        ends = F.one_hot(chosen.flatten(), len(self.gate)).sum(0).cumsum(0)
        sent, gate, up, down = (each.bfloat16() for each in (rows[order // self.top_k], self.gate, self.up, self.down))
        hidden = F.silu(products(sent, gate, ends)) * products(sent, up, ends)
        out = products(hidden, down, ends) * scores.softmax(-1).flatten()[order, None].bfloat16()
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return out[back].unflatten(0, (-1, self.top_k)).sum(1).view_as(x)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.before_attention, self.before_ffn = nn.RMSNorm(shape.d), nn.RMSNorm(shape.d)
        self.attention, self.ffn = Attention(shape), Experts(shape) if shape.experts else SwiGLU(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), cos, sin)
        return x + self.ffn(self.before_ffn(x))


class PlainDecoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(shape.vocabulary, shape.d), nn.RMSNorm(shape.d)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        half = shape.d // shape.heads // 2
        angles = torch.outer(torch.arange(shape.context).float(), 1e4 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
