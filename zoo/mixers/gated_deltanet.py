"""Gated DeltaNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import CONV, ShortConv, conv_cost, on_text
from zoo.errors import SpecError
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import Decay
from zoo.mixers._delta import DeltaCost, product_scan
from zoo.mixers._heads import split
from zoo.mixers._linear import Stateful, StatefulLayer, check_width, unit
from zoo.mixers._scan import STATE
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.projections import project_all
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import Fact, HeadFeatures, Heads
from zoo.site import ForwardPass, LayerSite, PartCost


class GatedDeltaNet(Stateful):
    """S_t = α_t S_{t−1} (I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, out = W_o (norm(S_t q_t) ⊙ silu(W_g x)). Yang et al. 2024,
    arXiv:2412.06464.

    q, k, v = silu(conv(W x)), q and k normalised to length 1, then q ← q/√d. β = σ(W_b x), α = exp(−A softplus(W_a x +
    b)), with A and b learned per head (as in Mamba-2). The norm is over each head, with one gain for all. As in
    Qwen3-Next, a query and key head can serve several value heads.

    With `householders` = r a token has r keys, values and strengths β, and after its decay takes r steps
    S ← S (I − β_i k_i k_iᵀ) + β_i v_i k_iᵀ (Gated DeltaProduct, Siems et al. 2025, arXiv:2502.10297).
    """

    examples: ClassVar[Examples] = (
        {"chunk": 8, "k_heads": 2, "head_dim": 5, "v_dim": 7},
        {"chunk": 4, "head_dim": 5, "v_dim": 6, "householders": 3, "negative_eigenvalues": True, "conv": None},
    )
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["gated_deltanet"] = "gated_deltanet"
    supports: ClassVar[Operations] = OF_MODULES
    heads: Heads = 4
    """Number of value heads."""
    k_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS] = None
    """Number of query and key heads; null for as many as `heads`."""
    head_dim: HeadFeatures | None = None
    """Features of a query and a key head; null for d_model / k_heads."""
    v_dim: HeadFeatures | None = None
    """Features of a value head; null for 2 d_model / heads."""
    householders: PositiveInt = 1
    """r: steps of the delta rule that each token takes."""
    negative_eigenvalues: bool = False
    """Whether β = 2σ(W_b x), so that I − β k kᵀ has an eigenvalue in (−1, 1) instead of (0, 1) (Grazzi et al. 2024,
    arXiv:2411.12537)."""
    conv: PositiveInt | None = 4
    """Tokens in the window of the convolution of queries, keys and values; null for no convolution."""
    activation: PlainActivation = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Activation after the convolution."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of each head's output S_t q_t, before the gate silu(W_g x)."""

    def resolve(self, d_model: int) -> Self:
        k_heads = self.k_heads or self.heads
        if self.heads % k_heads:
            raise SpecError("k_heads", f"{k_heads} heads of keys do not divide {self.heads} heads")
        for name, count, width in (("head_dim", k_heads, d_model), ("v_dim", self.heads, 2 * d_model)):
            if getattr(self, name) is None:
                check_width(count, width, name)
        sizes = {"head_dim": self.head_dim or d_model // k_heads, "v_dim": self.v_dim or 2 * d_model // self.heads}
        return self.model_copy(update={"k_heads": k_heads, **sizes})

    def sizes(self) -> tuple[int, int, int]:
        """Number of key heads, features of a key head and of a value head, of a resolved spec."""
        return number(self.k_heads), number(self.head_dim), number(self.v_dim)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Features per token of queries, of keys and of values."""
        k_heads, head_dim, v_dim = self.sizes()
        return k_heads * head_dim, self.householders * k_heads * head_dim, self.householders * self.heads * v_dim

    def build(self, site: LayerSite) -> MixerLayer:
        return GatedDeltaNetLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        _, _, v_dim = self.sizes()
        return d_model * (sum(self.widths) + 2 * self.heads * v_dim + (1 + self.householders) * self.heads)

    def vectors(self, d_model: int) -> int:
        _, _, v_dim = self.sizes()
        return 2 * self.heads + self.head_norm.parameters(v_dim)

    def convolution(self) -> PartCost:
        return conv_cost(sum(self.widths), self.conv)

    def scanning(self) -> DeltaCost:
        k_heads, head_dim, v_dim = self.sizes()
        return DeltaCost(k_heads, head_dim, self.heads, v_dim, self.chunk, rank=self.householders)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        _, head_dim, v_dim = self.sizes()
        shapes = {STATE: (self.heads, head_dim, v_dim)}
        return shapes if self.conv is None else {**shapes, CONV: (self.conv - 1, sum(self.widths))}


class GatedDeltaNetLayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: GatedDeltaNet, d_model: int) -> None:
        super().__init__(spec)
        self.spec, self.heads, self.strongest = spec, spec.heads, 1 + spec.negative_eigenvalues
        k_heads, self.head_dim, v_dim = spec.sizes()
        self.k_heads = k_heads
        queries, keys, values = spec.widths
        self.q, self.k = Linear(d_model, queries, role="input"), Linear(d_model, keys, role="input")
        self.v = Linear(d_model, values, role="input", values=True)
        self.gate = Linear(d_model, self.heads * v_dim, role="input")
        self.strength = Linear(d_model, spec.householders * self.heads, role="input")
        self.forget = Linear(d_model, self.heads, role="input")
        self.conv = ShortConv(sum(spec.widths), spec.conv) if spec.conv else None
        self.activation = UNGATED[spec.activation]
        self.decay = Decay(self.heads)
        self.head_norm = spec.head_norm.build(v_dim)
        self.o = Linear(self.heads * v_dim, d_model, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        joined = torch.cat(project_all(x, self.q, self.k, self.v), dim=-1)
        parts = self.activation(joined if self.conv is None else self.conv(joined, step, cache))
        q, k, v = parts.split(self.spec.widths, dim=-1)  # (B, T, K·n), (B, T, r·K·n), (B, T, r·H·p)
        k = on_text(k, step)  # padding adds nothing to the state, which is zero where a row's text begins
        q, k = unit(split(q, self.k_heads)), unit(self._steps(k, self.k_heads))  # (B, K, T, n), (B, K, T·r, n)
        q, v = q * self.head_dim**-0.5, self._steps(v, self.heads)  # (B, K, T, n), (B, H, T·r, p)
        _, decay = self.decay(self.forget(x))  # log α: (B, H, T)
        strength = self._steps(self.strength(x), self.heads)[..., 0].sigmoid() * self.strongest  # β: (B, H, T·r)
        mixed = product_scan(q, k, v, decay, strength, self.spec.chunk, cache).to(v.dtype)  # S_t q_t: (B, H, T, p)
        heads = self.head_norm(mixed) * F.silu(split(self.gate(x), self.heads))
        return self.o(heads.transpose(1, 2).flatten(2))

    def _steps(self, x: Tensor, heads: int) -> Tensor:
        """(B, T, r·heads·d), step by step → (B, heads, T·r, d)."""
        return split(x.unflatten(-1, (self.spec.householders, -1)).flatten(1, 2), heads)
