"""A token embedding of its own for every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import NONE, Ground, Grounds, Operation, Operations
from zoo.features import Feature, FeatureLayer, Model, Table, new_norm, norm_parameters
from zoo.features.altup import AltUp
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Embedding, Linear
from zoo.settings.axis import is_off
from zoo.settings.edits import SpecJson
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, PartCost, matmul_cost


class PerLayerEmbeddings(Feature):
    """x ← x + norm(W_o (act(W_g x) ⊙ e_l)) after layer l, with e_l = (norm(W_l e / √D) + √P E_l[token]) / √2: (P,).
    Gemma 3n (Google 2025), https://ai.google.dev/gemma/docs/gemma-3n.

    e: the embedded token. E is one table with L·P features per token; it counts as embedding and costs no FLOPs. W_l
    has no bias, and all layers share the norm of W_l e. With AltUp, W_g reads the active stream, and the update is
    added to all streams but the first.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.PLAIN_STREAM, Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    writes_after_layers: ClassVar[bool] = True

    features: Annotated[PositiveInt, Fact.WIDTH] = 256
    """P: embedding features per token and layer."""
    activation: PlainActivation = "gelu_tanh"
    """Activation of the gate W_g x, (P,)."""
    vocabulary: Annotated[PositiveInt | None, Fact.SIZE] = None
    """Rows of E; null: one per token of the vocabulary. Token ids beyond the table read row 0."""
    scaled: Annotated[bool, Field(exclude_if=is_off)] = False
    """Whether the input of W_g is scaled by a learned gain per feature (Gemma 3n's `correct_output_scale`)."""

    def rows(self, vocabulary: int) -> int:
        """Rows of the table E."""
        return self.vocabulary or vocabulary

    def build(self, model: Model) -> PerLayerInputs:
        return PerLayerInputs(self, model)

    def cost(self, model: Model, context: int) -> PartCost:
        d_model, layers, blocks = model.d_model, model.n_layers, max(model.block_of_each) + 1
        of_block, projection = 2 * d_model * self.features, d_model * layers * self.features
        own = of_block + norm_parameters(model) + d_model * self.scaled
        parameters = projection + norm_parameters(model, self.features) + blocks * own
        return matmul_cost(parameters, projection + layers * of_block)

    def token_tables(self, model: Model) -> Sequence[Table]:
        return [Table(self.rows(model.vocab_size), model.n_layers * self.features)]

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        return {**small, "vocabulary": None}


class LayerTable(Embedding):
    """tokens: (B, T) → (B, T, L·P)."""

    def __init__(self, count: int, layers: int, features: int) -> None:
        super().__init__(count, layers * features)
        self.initial_std = {"weight": features**-0.5}


class PerLayerInputs(FeatureLayer):
    """The table, the projection of the embedded token, and the modules with which each layer reads their sum."""

    name: ClassVar[str] = "per_layer"
    shell: ClassVar[int] = 1

    def __init__(self, spec: PerLayerEmbeddings, model: Model) -> None:
        super().__init__()
        self.features, self.layers_of_model, self.block_of_each = spec.features, model.n_layers, model.block_of_each
        self.active = next((each.active for each in model.features.values() if isinstance(each, AltUp)), None)
        self.table = LayerTable(spec.rows(model.vocab_size), model.n_layers, spec.features)
        self.project = Linear(model.d_model, model.n_layers * spec.features, role="input")
        self.norm = model.block.norm.build(spec.features)
        blocks = range(max(self.block_of_each) + 1)
        self.layers = nn.ModuleList(PerLayerInput(spec, new_norm(model), model.d_model) for _ in blocks)

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        step.states[self.name] = self(step.tokens, embedded)

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """Adds the update of the layer's own token embedding to the stream."""
        read, own = self.layers[self.block_of_each[layer]], step.states[self.name][..., layer, :]
        if self.active is None:
            out: Tensor = x + read(x, own)
            return out
        added = read(x[..., self.active, :], own)[..., None, :]
        return torch.cat((x[..., :1, :], x[..., 1:, :] + added), dim=-2)

    def forward(self, tokens: Tensor, embedded: Tensor) -> Tensor:
        """(B, T) and (B, T, D) → e: (B, T, L, P)."""
        shape = (self.layers_of_model, self.features)
        known = torch.where(tokens < self.table.num_embeddings, tokens, 0)
        looked_up = self.table(known).unflatten(-1, shape) * math.sqrt(self.features)
        projected = self.norm((self.project(embedded) / math.sqrt(embedded.shape[-1])).unflatten(-1, shape))
        out: Tensor = (projected + looked_up) / math.sqrt(2)
        return out


class PerLayerInput(nn.Module):
    """x: (B, T, D), e_l: (B, T, P) → the update to x: (B, T, D)."""

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
