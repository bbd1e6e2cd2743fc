"""Token tables that every layer reads for itself."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from zoo.axis import Spec, is_off
from zoo.facts import Fact
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Embedding, Linear
from zoo.residuals import MakeNorm
from zoo.site import PartCost, matmul_cost


class PerLayerEmbeddings(Spec):
    """x ← x + norm(W_o (act(W_g x) ⊙ e_l)) after layer l, with e_l = (norm(W_l e / √D) + √P E_l[token]) / √2: (P,).
    Gemma 3n (Google 2025), https://ai.google.dev/gemma/docs/gemma-3n.

    e: the embedded token. E is one table of L·P features for each token, which counts as embedding and costs no FLOPs;
    W_l has no bias, and the norm of W_l e is one for all layers. With AltUp W_g reads the active stream, and what it
    makes is added to all streams but the first.
    """

    features: Annotated[PositiveInt, Fact.WIDTH] = 256
    """P."""
    activation: PlainActivation = "gelu_tanh"
    vocabulary: Annotated[PositiveInt | None, Fact.SIZE] = None
    """Rows of E; null for one for each token. Tokens beyond them read the first."""
    scaled: Annotated[bool, Field(exclude_if=is_off)] = False
    """Whether each feature that W_g reads has a learned gain (Gemma 3n's `correct_output_scale`)."""

    def rows(self, vocabulary: int) -> int:
        """Of E."""
        return self.vocabulary or vocabulary

    def cost(self, d_model: int, norms: tuple[int, int], layers: int, blocks: int) -> PartCost:
        """Per token of a forward pass, without E. norms: parameters of one over P features, and of one over D. blocks:
        distinct ones among the layers."""
        of_block, projection = 2 * d_model * self.features, d_model * layers * self.features
        own = of_block + norms[1] + d_model * self.scaled
        return matmul_cost(projection + norms[0] + blocks * own, projection + layers * of_block)


class LayerTable(Embedding):
    """tokens: (B, T) → (B, T, L·P)."""

    def __init__(self, count: int, layers: int, features: int) -> None:
        super().__init__(count, layers * features)
        self.initial_std = {"weight": features**-0.5}


class PerLayerInputs(nn.Module):
    """The table, its counterpart from the embedded token, and how each layer's block reads both."""

    def __init__(
        self, spec: PerLayerEmbeddings, norms: tuple[nn.Module, MakeNorm], sizes: tuple[int, int, int, int]
    ) -> None:
        """norms: one over P features, and how to make those over D. sizes: V, D, L, and distinct blocks."""
        super().__init__()
        vocabulary, d_model, layers, blocks = sizes
        self.features, self.layers_of_model = spec.features, layers
        self.table = LayerTable(spec.rows(vocabulary), layers, spec.features)
        self.project = Linear(d_model, layers * spec.features, role="input")
        self.norm = norms[0]
        self.layers = nn.ModuleList(PerLayerInput(spec, norms[1](), d_model) for _ in range(blocks))

    def forward(self, tokens: Tensor, embedded: Tensor) -> Tensor:
        """(B, T) and (B, T, D) → e: (B, T, L, P)."""
        shape = (self.layers_of_model, self.features)
        known = torch.where(tokens < self.table.num_embeddings, tokens, 0)
        looked_up = self.table(known).unflatten(-1, shape) * math.sqrt(self.features)
        projected = self.norm((self.project(embedded) / math.sqrt(embedded.shape[-1])).unflatten(-1, shape))
        out: Tensor = (projected + looked_up) / math.sqrt(2)
        return out


class PerLayerInput(nn.Module):
    """x: (B, T, D), e_l: (B, T, P) → what is added: (B, T, D)."""

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, spec: PerLayerEmbeddings, norm: nn.Module, d_model: int) -> None:
        super().__init__()
        self.activation = UNGATED[spec.activation]
        self.gain = nn.Parameter(torch.ones(d_model)) if spec.scaled else None
        self.gate = Linear(d_model, spec.features, role="input")
        self.out = Linear(spec.features, d_model, role="output")
        self.norm = norm

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        hidden = self.gate(x if self.gain is None else x * self.gain)
        added: Tensor = self.norm(self.out(self.activation(hidden) * embedded))
        return added
