"""Cost of a model: parameters, FLOPs per token, cache bytes. Arithmetic on the spec, no tensors. For single passes with
a cache, see `zoo.costs_decoding`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from zoo.caches import CacheKind
from zoo.caching.kinds import cache_kind
from zoo.features import Table
from zoo.refusals import check_size
from zoo.site import PartCost, matmul_cost
from zoo.spec import ModelSpec

BACKWARD = 2
"""A backward pass costs two matrix products for each one of the forward pass."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True)
class Cost:
    """Costs of a spec at a context length.

    params counts every parameter; params_active those that one token's forward pass uses (not all experts, and no
    modules of multi-token prediction); params_embedding the token table, tables of
    positions and those that add to values.

    FLOPs of training (forward and backward, with what predicts only then) are said three ways. flops_per_token is what
    the architecture needs, however it is computed, and what budgets count: the scores that the mask lets through, and
    recurrences as they are written, whatever their `chunk`. flops_per_token_square has whole T × T matrices of scores,
    as a counter of matrix products has for full attention. flops_per_token_executed is what is computed here on whole,
    unpadded texts: windows and patterns without the square, recurrences by chunks. What fused kernels skip above the
    diagonal, or compute again in the backward pass, is not told apart, nor what a head in chunks computes again.
    flops_per_token_forward is needed by a forward pass alone.

    What is made of weights and places alone is computed once for all rows of a batch, and is in none of these:
    flops_per_step is that of a training step, flops_per_pass of a forward pass; 0 for nearly all models. Budgets count
    a token's share of it.
    """

    spec: ModelSpec
    context: int
    encoder_context: int
    params: int
    params_active: int
    params_embedding: int
    flops_per_token_forward: float
    flops_per_token: float
    flops_per_token_square: float
    flops_per_token_executed: float
    flops_per_pass: float
    flops_per_step: float

    def cache_bytes(
        self,
        batch: int,
        context: int,
        dtype: object = "float32",
        encoder_context: int | None = None,
        *,
        cache: CacheKind | str = "plain",
    ) -> int:
        """Bytes that `new_cache(batch, context, dtype, encoder_context, kind=cache)` allocates, 0 for an encoder, which
        has none; of pages, after `context` tokens. dtype: a torch dtype or its name."""
        if self.spec.visible == "all":
            return 0
        size, kind = BYTES[str(dtype).removeprefix("torch.")], cache_kind(cache)
        kind.check(self.spec)
        plain = size * cache_elements(self.spec, context, encoder_context or context)
        return batch * (plain + sum(kind.extra_bytes(layer.mixer, context, size) for layer in self.spec.layers))


def cost(spec: ModelSpec, context: int = 1024, encoder_context: int | None = None, prefix: float = 0.0) -> Cost:
    """Costs at sequences of `context` tokens.

    encoder_context: tokens that the encoder reads beside them, as many unless told; its costs are in those per token of
    the decoder. prefix: for models that see all of one, the share of the pairs of tokens of which the first sees the
    second though it comes later: P(P − 1) / (T(T − 1)) for P tokens of T.
    """
    memory = context if encoder_context is None else encoder_context
    check_size("context", context)
    check_size("encoder_context", memory)
    encoder, share = spec.encoder_spec, memory / context
    looked_up = sum(table.parameters() for table in tables(spec)) + (spec.token_types or 0) * spec.d_model
    embedding = looked_up + absolute_positions(spec)
    # A forward pass: tables, head, layers and what is around them, and the encoder.
    total = PartCost(looked_up) + ends_cost(spec, context) + stack_cost(spec, context, prefix, memory)
    if encoder is not None:
        embedding += absolute_positions(encoder)
        total += (stack_cost(encoder, memory, prefix) + matmul_cost(0, spec.factor)).for_share(share)
    # Training: what its passes add to that, or leave out.
    trained = total
    for feature in spec.features.values():
        trained += feature.training_cost(spec, context, memory)
    for layer, reads in zip(spec.layers, reads_of(spec, context), strict=True):
        trained += layer.training_cost(spec.d_model, reads.context).for_share(reads.share)
    for layer in () if encoder is None else encoder.layers:
        trained += layer.training_cost(spec.d_model, memory).for_share(share)
    per_pass = pass_flops(spec, context)
    # What is made of weights and places has no gradient with respect to places: backward takes as much, not twice.
    per_step = 2.0 * (per_pass + sum(feature.pass_flops(spec, context) for feature in spec.features.values()))
    return Cost(
        spec=spec,
        context=context,
        encoder_context=memory if encoder is not None else 0,
        params=trained.parameters,
        params_active=trained.parameters - trained.inactive,
        params_embedding=embedding,
        flops_per_token_forward=total.flops,
        flops_per_token=(1 + BACKWARD) * trained.flops,
        flops_per_token_square=(1 + BACKWARD) * trained.flops_square,
        flops_per_token_executed=(1 + BACKWARD) * trained.flops_executed,
        flops_per_pass=per_pass,
        flops_per_step=per_step,
    )


def tables(spec: ModelSpec) -> Iterator[Table]:
    """Token tables: the model's own, and those of features."""
    yield Table(spec.vocab_size, spec.table_width)
    for feature in spec.features.values():
        yield from feature.token_tables(spec)


def absolute_positions(spec: ModelSpec) -> int:
    """Parameters of tables of positions, which are added to the embedded tokens."""
    return sum(p.shared_parameters(spec.d_model, heads) for p, heads in spec.positions if p.absolute)


def ends_cost(spec: ModelSpec, context: int) -> PartCost:
    """Head, with its transform, factorised projections, and what features add around layers and between them."""
    transform = 0
    if spec.head_transform is not None:
        transform = spec.d_model * spec.d_model + spec.d_model + spec.block.norm.parameters(spec.d_model)
    untied = 0 if spec.tie_embeddings else spec.vocab_size * spec.table_width
    parameters = untied + 2 * spec.factor + transform + spec.vocab_size * (spec.head_bias + spec.logit_gain)
    total = spec.read_out + matmul_cost(parameters, spec.factor)
    for feature in spec.features.values():
        total += feature.cost(spec, context)
    return total


def stack_cost(spec: ModelSpec, context: int, prefix: float, memory: int = 0) -> PartCost:
    """Layers, norms around them, positions that they share, and residuals that look back at other layers."""
    norms = (spec.has_final_norm + spec.has_embedding_norm) * spec.block.norm.parameters(spec.d_model)
    schemes = sum(scheme.shared_parameters(spec.d_model, heads) for scheme, heads in spec.positions)
    total = PartCost(norms + schemes) + depth_cost(spec)
    ahead = {"causal": 0.0, "prefix": prefix, "all": 1.0}[spec.visible]
    met: set[int] = set()
    for block, layer, reads in zip(spec.block_of_each, spec.layers, reads_of(spec, context), strict=True):
        part = layer.cost(spec.d_model, reads.context, memory).for_share(reads.share) + layer.cost_around(spec.d_model)
        if block in met:
            part = replace(part, parameters=0, inactive=0)
        met.add(block)
        # Without windows, which no such model has, what is not seen of the square is what comes later.
        total += replace(part, flops=part.flops + ahead * (part.flops_square - part.flops))
    return total


def depth_cost(spec: ModelSpec) -> PartCost:
    """Cost of residuals that look back at other layers of their stack."""
    layers, norm = spec.layers, spec.block.norm.parameters(spec.d_model)
    return layers[-1].norm_placement.depth_cost(spec.d_model, norm, [layer.branch_numbers for layer in layers])


def pass_flops(spec: ModelSpec, context: int) -> float:
    """FLOPs of a forward pass that any number of rows of `context` tokens share."""
    return sum(layer.mixer.pass_flops(context) for layer in spec.layers)


class Reads(NamedTuple):
    """A sequence of so many tokens that a layer reads of a text, and their share of its tokens."""

    context: int
    share: float


def reads_of(spec: ModelSpec, context: int) -> Iterator[Reads]:
    """Tokens that every layer reads of a text of `context` tokens."""
    for subset in spec.subsets:
        count = context if subset is None else subset.count(context)
        yield Reads(count, count / context)


def cache_elements(spec: ModelSpec, capacity: int, memory: int = 0) -> int:
    """Numbers kept per sequence, for up to `capacity` tokens, and `memory` of the encoder's."""
    return cache_beside(spec, memory) + sum(layer.cache_elements(spec.d_model, capacity) for layer in spec.layers)


def cache_beside(spec: ModelSpec, memory: int) -> int:
    """Numbers kept per sequence beside what layers keep of its tokens: of the encoder's, and by features."""
    kept = sum(feature.cache_elements(spec) for feature in spec.features.values())
    return kept + sum(layer.cross.cache_elements(memory) for layer in spec.layers if layer.cross)
