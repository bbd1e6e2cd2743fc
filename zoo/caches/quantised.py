"""Quantised caches: keys and values in eight or four bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.caches import CacheKind
from zoo.caching.cache import TokenCache

if TYPE_CHECKING:
    from zoo.mixers import MixerLayer


class Quantised(CacheKind):
    """x̂ = l + s · round((x − l)/s), s = (max − l)/(2ᵇ − 1), for each group of `group` features of a token's head, with
    minimum l.

    Groups lie along features, for both keys and values, so that a token's storage does not depend on the chunk that it
    came in; KIVI (Liu et al. 2024, arXiv:2402.02750) groups keys along tokens, which loses less. l and s have the
    cache's dtype, of unit roundoff u: |x̂ − x| ≤ s(1 + u)/2 + u(|l| + max − l). Tokens are quantised as they arrive and
    read as x̂ from then on, even within the chunk that brings them.
    """

    bits: ClassVar[int]
    group: PositiveInt = 32
    """Features of a token's head that share a scale s and an offset l."""

    def store_tokens(self, tokens: TokenCache, mixer: MixerLayer) -> TokenCache:
        return QuantisedCache(tokens, self.bits, self.group)

    def token_bytes(self, shapes: Sequence[tuple[int, int]], slots: int, rolling: bool, size: int) -> int:
        groups = sum(heads * ceil(features / self.group) for heads, features in shapes)
        codes = sum(heads * ceil(features * self.bits / 8) for heads, features in shapes)
        return slots * (codes + 2 * size * groups)


class QuantisedCache(TokenCache):
    """Three buffers for each plain one (keys, values, …): codes, l and s."""

    def __init__(self, plain: TokenCache, bits: int, group: int) -> None:
        self.bits, self.group = bits, group
        self.features = [buffer.shape[-1] for buffer in plain.buffers]
        self.dtype = plain.buffers[0].dtype
        parts = [(buffer, part) for buffer in plain.buffers for part in self._quantise(buffer[:, :, :0])]
        buffers = [part.new_zeros(*buffer.shape[:3], part.shape[-1]) for buffer, part in parts]
        super().__init__(*buffers, rolling=plain.capacity is None)

    def encode(self, new: Sequence[Tensor]) -> list[Tensor]:
        return [part for x in new for part in self._quantise(x.detach())]

    def _quantise(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kind, levels = torch.promote_types(x.dtype, torch.float32), 2**self.bits - 1
        # In groups, the last one padded with the last feature: (…, groups, group)
        count = ceil(x.shape[-1] / self.group)
        padded = torch.arange(count * self.group, device=x.device).clamp(max=x.shape[-1] - 1)
        groups = x.to(kind)[..., padded].unflatten(-1, (count, self.group))
        low = groups.amin(dim=-1)
        step = ((groups.amax(dim=-1) - low) / levels).to(self.dtype)
        low = low.to(self.dtype)
        feature = torch.arange(x.shape[-1], device=x.device) // self.group
        divisor = torch.where(step > 0, step, 1).to(kind)
        codes = ((x - low.to(kind)[..., feature]) / divisor[..., feature]).round().clamp(0, levels).to(torch.uint8)
        if self.bits == 4:  # two codes in a byte
            codes = torch.nn.functional.pad(codes, (0, codes.shape[-1] % 2))
            codes = codes[..., ::2] | codes[..., 1::2] << 4
        return codes, low, step

    def decode(self, kept: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        out = []
        for i, (features, x) in enumerate(zip(self.features, like, strict=True)):
            codes, low, step = kept[3 * i : 3 * i + 3]
            kind = torch.promote_types(x.dtype, torch.float32)
            feature = torch.arange(features, device=codes.device) // self.group
            if self.bits == 4:
                codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)[..., :features]
            known = codes.to(kind) * step.to(kind)[..., feature]
            out.append((known + low.to(kind)[..., feature]).to(x.dtype))
        return out


class Int8(Quantised):
    """x̂ = l + s · round((x − l)/s), s = (max − l)/255, for each group of `group` features of a token's head, with
    minimum l. |x̂ − x| ≤ s/2, plus the rounding of l and s to the cache's dtype. After KIVI (Liu et al. 2024,
    arXiv:2402.02750), which groups keys along tokens instead."""

    bits: ClassVar[int] = 8
    kind: Literal["int8"] = "int8"


class Int4(Quantised):
    """x̂ = l + s · round((x − l)/s), s = (max − l)/15, for each group of `group` features of a token's head, with
    minimum l. |x̂ − x| ≤ s/2, plus the rounding of l and s to the cache's dtype. After KIVI (Liu et al. 2024,
    arXiv:2402.02750), which groups keys along tokens instead."""

    bits: ClassVar[int] = 4
    kind: Literal["int4"] = "int4"
