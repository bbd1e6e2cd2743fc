"""Mixture of experts, routed by a hash of the token id."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import NonNegativeInt, PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.ffns._moe import MoE
from zoo.ffns._routing import LinearRouter, Router, Routing
from zoo.ffns.deepseek_moe import SCORES
from zoo.settings.axis import Examples
from zoo.site import PartCost

WORD = (1 << 32) - 1
"""Mask of 32 bits, the size of a hash."""


class HashMoE(MoE):
    """y = Σ_{e ∈ hash(token)} w_e FFN_e(x): the token id alone determines the experts, in every text and from the first
    step on. Roller et al. 2021, arXiv:2106.04426.

    The hash is the paper's random hash: each id has k fixed pseudo-random experts. The paper draws several hashes
    independently (MultiHash), so that two may name the same expert; here the k experts are distinct. w = 1, and routing
    has no learned part; or, with a `score`, w_e are the chosen experts' scores of W_router x, divided by their sum
    and multiplied by `scale`, as in DeepSeek-V4's first layers. The paper's balanced hash, which needs token counts of
    a corpus, is not implemented.
    """

    examples: ClassVar[Examples] = (
        {"d_ff": 20, "experts": 5},
        {"d_ff": 20, "experts": 5, "score": "sqrt_softplus", "scale": 1.5, "shared_experts": 1, "seed": 3},
    )
    reads_tokens: ClassVar[bool] = True
    kind: Literal["hash_moe"] = "hash_moe"
    supports: ClassVar[Operations] = BY_TOKEN
    seed: NonNegativeInt = 0
    """Seed of the hash function. All layers share it unless `blocks` set others."""
    score: Literal["sigmoid", "softmax", "sqrt_softplus"] | None = None
    """Score of W_router x that weights the chosen experts; null for a weight of 1 each."""
    normalise: bool = True
    """Whether the chosen experts' scores are divided by their sum."""
    scale: PositiveFloat = 1.0
    """Factor on the weights of the chosen experts."""

    def resolve(self, d_model: int) -> Self:
        for name in ("balance_loss", "router_z_loss"):
            if getattr(self, name):
                raise SpecError(name, "must be 0: hash routing is not learned")
        if self.score is None:
            defaults = {"normalise": True, "scale": 1.0, "router_hidden": None}
            for name, default in defaults.items():
                if getattr(self, name) != default:
                    raise SpecError(name, "needs score")
        return super().resolve(d_model)

    def router_cost(self, d_model: int) -> PartCost:
        return PartCost(0) if self.score is None else super().router_cost(d_model)

    def router(self, d_model: int) -> Router:
        return HashRouter(self) if self.score is None else ScoredHashRouter(self, d_model)


class HashRouter(Router):
    """x: (..., D), tokens: (...,) → `Routing` with weights of 1."""

    def __init__(self, spec: HashMoE) -> None:
        super().__init__()
        self.hash = partial(hashed, experts=spec.choices, count=spec.top_k, seed=spec.seed)

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        chosen = self.hash(given(tokens))
        one = torch.ones_like(chosen, dtype=torch.float32)
        return Routing(one, one, chosen, one, chosen)  # without auxiliary losses, the logits are unused


class ScoredHashRouter(LinearRouter):
    """x: (..., D), tokens: (...,) → `Routing` weighted by the scores of the chosen experts."""

    def __init__(self, spec: HashMoE, d_model: int) -> None:
        super().__init__(d_model, spec.choices, hidden=spec.router_hidden)
        self.spec, self.score = spec, SCORES[str(spec.score)]

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        spec, logits = self.spec, self.logits(x)
        scores, chosen = self.score(logits), hashed(given(tokens), spec.choices, spec.top_k, spec.seed)
        weights = scores.gather(-1, chosen)
        if spec.normalise:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        probabilities = scores / scores.sum(dim=-1, keepdim=True)
        return Routing(logits, probabilities, chosen, weights * spec.scale, chosen)


def given(tokens: Tensor | None) -> Tensor:
    """The token ids of a pass. Raises ValueError if it has none."""
    if tokens is None:
        raise ValueError("hash_moe needs token ids, which this pass does not have")
    return tokens


def hashed(tokens: Tensor, experts: int, count: int, seed: int) -> Tensor:
    """tokens: (...,) → (..., count): the experts e with the largest mix(mix(mix(seed) + token) + e), largest first.

    Rendezvous hashing: each id ranks the experts in its own order, without a table of ids."""
    start = torch.full((), seed & WORD, device=tokens.device)
    number = torch.arange(experts, device=tokens.device)
    ranks = _mixed((_mixed(_mixed(start) + tokens))[..., None] + number)
    # The expert's index as lowest digit: ranks are distinct, so their order is the same on every device.
    return (ranks * experts + number).topk(count, dim=-1).indices


def _mixed(x: Tensor) -> Tensor:
    """Murmur3's finaliser on 32-bit numbers. They are held in int64, whose overflow leaves the low 32 bits exact."""
    x = x & WORD
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & WORD
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & WORD
    return x ^ (x >> 16)
