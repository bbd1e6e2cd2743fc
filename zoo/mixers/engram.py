"""Hashed n-gram memory."""

from __future__ import annotations

import functools
import itertools
import math
import random
from typing import Annotated, ClassVar, Literal, Self, cast

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import Operation, Operations
from zoo.conv import CONV, ShortConv, conv_cost
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import Mixer, MixerLayer
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import Fact, Features, MaxInTests
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost

STATE = "ids"
"""Cache name of the last tokens' ids."""
BYTES = 3
"""Bytes of a cached id, each stored as a number below 256, which every cache dtype represents exactly."""
FACTOR_BITS = 38
"""Random bits of a hash factor, which is odd and below 2^(bits + 1): products with 3-byte ids fit in 64 bits."""
LEAST = 1e-6
"""Lower bound on |q| under the gate's root."""


class Engram(Mixer):
    """out = ṽ + silu(conv(norm(ṽ))), ṽ = σ(sign(q) √|q|) W_v e, q = xᵀ norm(W_k e) / √D, with e the rows of tables that
    hashes of the last n tokens select, n = 2 … N. Cheng et al. 2026 (DeepSeek), arXiv:2601.07372.

    e_t = concat over n and k of E_nk[h_n mod M_nk], h_n = ⊕_{i<n} m_i · id_{t−i}. The K hashes of an n-gram differ in
    their primes M_nk; an id is the token's plus one, and 0 before the text. The depthwise convolution reads every N-th
    token. x is the output of the block's norm, so that with `norm_placement: pre` and `ffn: none` a block is the
    paper's module, before the block that follows it in `pattern`.

    The root in the gate is from the authors' code. Left out: merging ids whose texts differ only in case and accents,
    which needs a tokenizer; separate keys for several streams, which share one here; and primes that differ between
    layers, as the factors m do here. Lookups cost no FLOPs, and a token uses K (N − 1) rows of the tables' parameters.
    """

    examples: ClassVar[Examples] = (
        {"rows": 13, "features": 6, "hashes": 2},
        {"rows": 11, "features": 5, "hashes": 1, "max_ngram": 2, "conv": None},
    )
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["engram"] = "engram"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    reads_tokens: ClassVar[bool] = True
    max_ngram: Annotated[int, Field(ge=2, le=32)] = 3
    """N: tokens of the longest n-gram."""
    hashes: Annotated[PositiveInt, Field(le=32), MaxInTests(2)] = 8
    """K: hashes of an n-gram, each with its own table."""
    rows: Annotated[PositiveInt, Field(le=10**9), Fact.SIZE, MaxInTests(64)] = 4096
    """Minimum number of rows of a table; every table has a different prime number of rows."""
    features: Features | None = None
    """Features of an n-gram's K rows together, a multiple of K; null for the one nearest to d_model / (N − 1)."""
    width: Features | None = None
    """D: features of the values W_v e; null for d_model, the only allowed value."""
    norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of the key W_k e, and of the convolution's input."""
    conv: PositiveInt | None = 4
    """Tokens that the convolution reads, every N-th one; null for no convolution (DeepSeek-V4.1)."""
    seed: NonNegativeInt = 0
    """Seed of the hash factors m, which also differ between layers."""

    def resolve(self, d_model: int) -> Self:
        wanted = self.features or self.hashes * max(1, round(d_model / (self.max_ngram - 1) / self.hashes))
        if wanted % self.hashes:
            raise SpecError("features", f"{self.hashes} hashes do not divide {wanted} features")
        if self.width not in (None, d_model):
            raise SpecError("width", f"must equal d_model ({d_model}), not {self.width}")
        return self.model_copy(update={"features": wanted, "width": d_model})

    def build(self, site: LayerSite) -> MixerLayer:
        return EngramLayer(self, site)

    @property
    def read(self) -> int:
        """Features of e, of a resolved spec."""
        return (self.max_ngram - 1) * number(self.features)

    def sizes(self) -> list[int]:
        """M: number of rows of each table, 2-grams first."""
        return list(primes(self.rows, (self.max_ngram - 1) * self.hashes))

    def factors(self, layer: int) -> list[int]:
        """m_0 … m_{N−1} of a layer."""
        drawn = random.Random(f"{self.seed}/{layer}")
        return [2 * drawn.getrandbits(FACTOR_BITS) + 1 for _ in range(self.max_ngram)]

    def cost(self, d_model: int, context: int) -> PartCost:
        matrices = 2 * self.read * d_model
        norms = (1 + (self.conv is not None)) * self.norm.parameters(d_model)
        tables = sum(self.sizes()) * self._row
        looked_up = PartCost.of(tables, 0.0, tables - self.read)
        return matmul_cost(matrices + norms, matrices) + looked_up + conv_cost(d_model, self.conv)

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """Upper bound: the rows that the tokens read if no two look up the same row."""
        unread = sum(max(0, size - tokens) for size in self.sizes())
        return self.cost(d_model, 1).parameters - unread * self._row

    @property
    def _row(self) -> int:
        """Features of a row of a table."""
        return number(self.features) // self.hashes

    def states(self) -> dict[str, tuple[int, int]]:
        """Shapes of a sequence's cached tensors, by name, of a resolved spec."""
        ids = {STATE: (self.max_ngram - 1, BYTES)}
        return ids if self.conv is None else ids | {CONV: ((self.conv - 1) * self.max_ngram, number(self.width))}

    def cache_elements(self, capacity: int) -> int:
        return sum(math.prod(shape) for shape in self.states().values())


class EngramLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"table": "embedding"}

    def __init__(self, spec: Engram, site: LayerSite) -> None:
        super().__init__()
        self.spec, self.sizes, d_model = spec, spec.sizes(), site.d_model
        self.factors = spec.factors(site.layer)
        self.table = nn.Parameter(torch.empty(sum(self.sizes), number(spec.features) // spec.hashes))
        """Rows of all tables, concatenated."""
        self.k = Linear(spec.read, d_model, role="input")
        self.v = Linear(spec.read, d_model, role="output", values=True)
        self.k_norm = spec.norm.build(d_model)
        self.conv = ShortConv(d_model, spec.conv, dilation=spec.max_ngram) if spec.conv else None
        self.conv_norm = spec.norm.build(d_model) if spec.conv else nn.Identity()

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return StateCache.zeros(batch, self.spec.states(), self.v.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        rows = self.rows(step, kept_by(self, cache, StateCache))
        read = F.embedding(rows, self.table).flatten(2)  # (B, T, (N − 1) F)
        gate = in_float32(_gate, x, self.k_norm(self.k(read)))
        out: Tensor = self.v(read) * gate.to(x.dtype)
        if self.conv is not None:
            out = out + F.silu(self.conv(self.conv_norm(out), step, cache))
        return out

    def rows(self, step: ForwardPass, states: StateCache | None) -> Tensor:
        """Indices of the rows that the tokens of a pass look up: (B, T, (N − 1) K)."""
        reach, seen = self.spec.max_ngram - 1, self._ids(step, states)  # (B, N − 1 + T)
        length = seen.shape[1] - reach
        mixed, rows, first = seen[:, reach:] * self.factors[0], [], 0
        for back in range(1, reach + 1):
            mixed = mixed ^ (seen[:, reach - back : reach - back + length] * self.factors[back])
            for size in self.sizes[(back - 1) * self.spec.hashes : back * self.spec.hashes]:
                rows.append(mixed % size + first)
                first += size
        return torch.stack(rows, dim=-1)

    def _ids(self, step: ForwardPass, states: StateCache | None) -> Tensor:
        """Ids plus one, 0 on padding and before the text, of the N − 1 tokens before the pass and its own: (B, N − 1 +
        T)."""
        ids = cast(Tensor, step.tokens) + 1
        ids = ids if step.text is None else ids.masked_fill(~step.text, 0)
        kept = None if states is None else states.read(STATE, torch.float32)
        if kept is None:
            before = ids.new_zeros(len(ids), self.spec.max_ngram - 1)
        else:
            digits = (kept[..., byte].long() << 8 * byte for byte in range(BYTES))
            before = sum(digits, start=ids.new_zeros(()))
        seen = torch.cat((before, ids), dim=1)
        if states is not None:
            last = seen[:, ids.shape[1] :]
            states.write(STATE, torch.stack([last >> 8 * byte & 255 for byte in range(BYTES)], dim=-1))
        return seen


def _gate(x: Tensor, keys: Tensor) -> Tensor:
    """σ(sign(q) √|q|), q = xᵀ k / √D. x, keys: (B, T, D) → (B, T, 1)."""
    logit = (x * keys).sum(-1, keepdim=True) / math.sqrt(x.shape[-1])
    return torch.sigmoid(logit.abs().clamp(min=LEAST).sqrt() * logit.sign())


@functools.cache
def primes(least: int, count: int) -> tuple[int, ...]:
    """The first `count` primes that are at least `least`."""
    from_least = (n for n in itertools.count(max(2, least)) if all(n % by for by in range(2, math.isqrt(n) + 1)))
    return tuple(itertools.islice(from_least, count))
