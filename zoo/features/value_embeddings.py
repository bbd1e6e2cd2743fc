"""Token embeddings added to the values of attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, cast

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import NONE, Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model, Table
from zoo.init import Embedding
from zoo.site import ForwardPass, PartCost

HeadsOfValues = tuple[int, int]
"""Number of a layer's value heads, and features per head."""


class ValueEmbeddings(Feature):
    """v ← λ₁ v + λ₂ E[token] in the first and the last layers, E a table with K·d features per token. Jordan et al.
    2024 (modded-nanogpt), https://github.com/KellerJordan/modded-nanogpt, after ResFormer, arXiv:2410.17897.

    With n tables, layers i and L − n + i read table i. λ = (½, ½) in each of these layers at the start; tables start as
    N(0, 1), the scale of the values. Tables cost no FLOPs.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_BLOCKS, Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = frozenset({Operation.LORA, Operation.SHARDING})

    tables: PositiveInt = 1
    """n: number of tables, each read by one of the first and one of the last layers."""

    @property
    def has_norms(self) -> bool:
        return False

    def check(self, model: Model) -> None:
        self._widths(model)

    def build(self, model: Model) -> ValueEmbeddingLayers:
        return ValueEmbeddingLayers(self, model.vocab_size, self.table_of_each(model.n_layers), self._widths(model))

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(4 * self.tables)

    def token_tables(self, model: Model) -> Sequence[Table]:
        return [Table(model.vocab_size, width) for width in self._widths(model)]

    def table_of_each(self, n_layers: int) -> tuple[int | None, ...]:
        """Table that each layer reads; None for no table. Raises SpecError if there are too few layers."""
        if 2 * self.tables > n_layers:
            raise SpecError("tables", f"{self.tables} tables need {2 * self.tables} layers, two each, not {n_layers}")
        tables = range(self.tables)
        return (*tables, *[None] * (n_layers - 2 * self.tables), *tables)

    def _widths(self, model: Model) -> list[int]:
        """Width of each table. Raises SpecError if a layer has no value heads, or its heads do not fit the table."""
        found: dict[int, HeadsOfValues] = {}
        for layer, (table, block) in enumerate(zip(self.table_of_each(model.n_layers), model.layers, strict=True)):
            if table is None:
                continue
            heads = block.mixer.value_heads
            if heads is None:
                raise SpecError("tables", f"layer {layer} has no value heads to add to")
            if found.setdefault(table, heads) != heads:
                ours, theirs = ("{} heads of {} features".format(*shape) for shape in (heads, found[table]))
                reason = f"layers {table} and {layer} share a table but have {theirs} and {ours}"
                raise SpecError("tables", reason)
        return [heads * features for heads, features in found.values()]


class ValueTable(Embedding):
    """tokens: (B, T) → (B, T, K·d)."""

    initial_std: ClassVar = {"weight": 1.0}


class ValueEmbeddingLayers(FeatureLayer):
    """The tables, and each layer's λ."""

    name: ClassVar[str] = "value_embeddings"
    shell: ClassVar[int] = 5
    roles: ClassVar = {"shares": "gain"}
    initial: ClassVar = {"shares": 0.5}

    def __init__(
        self, spec: ValueEmbeddings, vocabulary: int, table_of_each: Sequence[int | None], widths: Sequence[int]
    ) -> None:
        super().__init__()
        self.table_of_each = table_of_each
        self.tables = nn.ModuleList(ValueTable(vocabulary, width) for width in widths)
        self.shares = nn.Parameter(torch.full((2 * spec.tables, 2), 0.5))
        # Layer → its row of `shares`.
        self.rows = {layer: row for row, layer in enumerate(i for i, t in enumerate(table_of_each) if t is not None)}

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """Set the function that the layer applies to its values, `step.revalue`; None for no change."""
        table, tokens = self.table_of_each[layer], cast(Tensor, step.tokens)
        step.revalue = None if table is None else partial(self._mixed, layer=layer, table=table, tokens=tokens)
        return x

    def _mixed(self, v: Tensor, *, layer: int, table: int, tokens: Tensor) -> Tensor:
        """λ₁ v + λ₂ E[token]. v: (B, K, T, d)."""
        heads = self.tables[table](tokens).unflatten(-1, (v.shape[1], v.shape[3])).transpose(1, 2)
        own, embedded = self.shares[self.rows[layer]]
        out: Tensor = own * v + embedded * heads
        return out
