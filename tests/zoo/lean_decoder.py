"""The `small` preset's architecture as a plain decoder, written for speed alone: the yardstick of a training step."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo

EPS = 1e-6


class LeanDecoder(nn.Module):
    """tokens, targets: (B, T) → mean nats per target. Each product has one matrix of its own."""

    def __init__(self, vocabulary: int, d_model: int, layers: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self.d_model, self.heads, self.layers = d_model, heads, layers
        self.table = nn.Parameter(torch.empty(vocabulary, d_model))
        self.qkv = nn.ParameterList(torch.empty(3 * d_model, d_model) for _ in range(layers))
        self.o = nn.ParameterList(torch.empty(d_model, d_model) for _ in range(layers))
        self.gate_up = nn.ParameterList(torch.empty(2 * d_ff, d_model) for _ in range(layers))
        self.down = nn.ParameterList(torch.empty(d_model, d_ff) for _ in range(layers))
        self.gains = nn.ParameterList(torch.empty(d_model) for _ in range(2 * layers + 1))

    @classmethod
    def of(cls, model: zoo.Decoder) -> Self:
        """The same function as a model of the `small` preset."""
        state, spec = model.state_dict(), model.spec
        d_ff = state["blocks.0.ffn.up.weight"].shape[0]
        found = cls(spec.vocab_size, spec.d_model, spec.n_layers, spec.block.mixer.heads, d_ff)

        def joined(*names: str) -> Tensor:
            return torch.cat([state[f"{name}.weight"] for name in names])

        with torch.no_grad():
            found.table.copy_(state["embedding.weight"])
            found.gains[-1].copy_(state["norm.gain"])
            for i in range(spec.n_layers):
                block = f"blocks.{i}"
                found.qkv[i].copy_(joined(*(f"{block}.mixer.{name}" for name in "qkv")))
                found.o[i].copy_(joined(f"{block}.mixer.o"))
                found.gate_up[i].copy_(joined(f"{block}.ffn.gate", f"{block}.ffn.up"))
                found.down[i].copy_(joined(f"{block}.ffn.down"))
                found.gains[2 * i].copy_(state[f"{block}.mixer_residual.norm_in.gain"])
                found.gains[2 * i + 1].copy_(state[f"{block}.ffn_residual.norm_in.gain"])
        return found

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → logits: (B, T, V)."""
        x = F.embedding(tokens, self.table) * self.d_model**0.5
        batch, length, width = x.shape
        size = width // self.heads
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
        cos, sin = angles.cos(), angles.sin()
        for i in range(self.layers):
            h = F.rms_norm(x, (width,), self.gains[2 * i], EPS)
            heads = F.linear(h, self.qkv[i]).view(batch, length, 3, self.heads, size)
            q, k, v = heads.permute(2, 0, 3, 1, 4)  # (B, H, T, d) each
            mixed = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), self.o[i])
            h = F.rms_norm(x, (width,), self.gains[2 * i + 1], EPS)
            gate, up = F.linear(h, self.gate_up[i]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, self.down[i])
        return F.linear(F.rms_norm(x, (width,), self.gains[-1], EPS), self.table)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (B, H, T, d), rotated by cos, sin: (T, d/2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
