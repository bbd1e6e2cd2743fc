"""Cost of a model: parameters, FLOPs per token, cache bytes, computed from the spec without tensors. For prefill and
decoding, see `zoo.costs_decoding`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from zoo.caches import CacheKind, cache_kind
from zoo.errors import SpecError
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
    modules of multi-token prediction); params_embedding the tables of tokens, token types, positions and features;
    params_head the output table, 0 if it is the token table. params_inside is the rest, by which the size of a model
    and the length of its training are told: a head counts in it as little if it is untied as if it is tied.

    Training FLOPs (forward and backward, with modules that predict only in training) are counted in three ways.
    flops_per_token is what the architecture needs, however it is computed, and what budgets count: the scores that the
    mask lets through, and recurrences in recurrent form, whatever their `chunk`. flops_per_token_square has full T × T
    score matrices, as a counter of matrix products reports for full attention. flops_per_token_executed is what this
    code computes on whole, unpadded texts: windows and patterns without the square, recurrences by chunks. It includes
    scores above the diagonal that fused kernels skip, and excludes what a fused kernel or a head in chunks recomputes
    in the backward pass. flops_per_token_forward is flops_per_token of a forward pass outside training.

    Work on weights and positions alone is done once for all rows of a batch, and is in none of these: flops_per_pass is
    its cost in a forward pass, flops_per_step in a training step; 0 for nearly all models. Budgets count each token's
    share of it.
    """

    spec: ModelSpec
    context: int
    encoder_context: int
    params: int
    params_active: int
    params_embedding: int
    params_head: int
    flops_per_token_forward: float
    flops_per_token: float
    flops_per_token_square: float
    flops_per_token_executed: float
    flops_per_pass: float
    flops_per_step: float

    @property
    def params_inside(self) -> int:
        return self.params - self.params_embedding - self.params_head

    def cache_bytes(
        self,
        batch: int,
        context: int,
        dtype: object = "float32",
        encoder_context: int | None = None,
        *,
        cache: CacheKind | str = "plain",
    ) -> int:
        """Bytes that `new_cache(batch, context, dtype, encoder_context, kind=cache)` allocates; 0 for an encoder, which
        has no cache. Of a paged cache: the pages in use after `context` tokens. dtype: a torch dtype or its name."""
        if self.spec.visible == "all":
            return 0
        size, kind = BYTES[str(dtype).removeprefix("torch.")], cache_kind(cache)
        kind.check(self.spec)
        plain = size * cache_elements(self.spec, context, encoder_context or context)
        return batch * (plain + sum(kind.extra_bytes(layer.mixer, context, size) for layer in self.spec.layers))


MOST_PARAMETERS = 10**15
"""A thousand times those of the largest models: no machine holds as many."""


def refuse_impossible(spec: ModelSpec) -> None:
    """Raise SpecError for a model whose tensors could not even be described: their sizes would overflow."""
    try:
        possible = cost(spec, context=1).params <= MOST_PARAMETERS
    except OverflowError:  # a size that no float can hold
        possible = False
    if not possible:
        raise SpecError("d_model", f"more than {MOST_PARAMETERS:.0e} parameters, which no machine holds")


def cost(spec: ModelSpec, context: int = 1024, encoder_context: int | None = None, prefix: float = 0.0) -> Cost:
    """Costs on sequences of `context` tokens. Raises ValueError for a length below 1.

    encoder_context: tokens that the encoder reads, `context` by default; its costs are spread over the decoder's
    tokens. prefix: for mask `prefix`, the share of token pairs in which the earlier token sees the later one:
    P(P − 1) / (T(T − 1)) for a prefix of P of T tokens.
    """
    memory = context if encoder_context is None else encoder_context
    check_size("context", context)
    check_size("encoder_context", memory)
    encoder, share = spec.encoder_spec, memory / context
    looked_up = sum(table.parameters() for table in tables(spec)) + (spec.token_types or 0) * spec.d_model
    embedding = looked_up + absolute_positions(spec)
    # Forward pass: tables, head, the layers with what surrounds them, and the encoder.
    total = PartCost(looked_up) + outer_cost(spec, context) + stack_cost(spec, context, prefix, memory)
    if encoder is not None:
        embedding += absolute_positions(encoder)
        total += (stack_cost(encoder, memory, prefix) + matmul_cost(0, spec.factor)).for_share(share)
    # Training passes add some work and skip some.
    trained = total
    for feature in spec.features.values():
        trained += feature.training_cost(spec, context, memory)
    for layer, reads in zip(spec.layers, reads_of(spec, context), strict=True):
        trained += layer.training_cost(spec.d_model, reads.context).for_share(reads.share)
    for layer in () if encoder is None else encoder.layers:
        trained += layer.training_cost(spec.d_model, memory).for_share(share)
    per_pass = pass_flops(spec, context)
    # Positions have no gradient, so the backward pass of this work costs as much as the forward pass, not twice that.
    per_step = 2.0 * (per_pass + sum(feature.pass_flops(spec, context) for feature in spec.features.values()))
    return Cost(
        spec=spec,
        context=context,
        encoder_context=memory if encoder is not None else 0,
        params=trained.parameters,
        params_active=trained.parameters - trained.inactive,
        params_embedding=embedding,
        params_head=head_table(spec),
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
    """Parameters of absolute position tables, which are added to the embedded tokens."""
    return sum(p.shared_parameters(spec.d_model, heads) for p, heads in spec.positions if p.absolute)


def outer_cost(spec: ModelSpec, context: int) -> PartCost:
    """Cost of the head with its transform, of factorised projections, and of features around and between layers."""
    transform = 0
    if spec.head_transform is not None:
        transform = spec.d_model * spec.d_model + spec.d_model + spec.block.norm.parameters(spec.d_model)
    parameters = head_table(spec) + 2 * spec.factor + transform + spec.vocab_size * (spec.head_bias + spec.logit_gain)
    total = spec.read_out + matmul_cost(parameters, spec.factor)
    for feature in spec.features.values():
        total += feature.cost(spec, context)
    return total


def head_table(spec: ModelSpec) -> int:
    """Parameters of the output table; 0 if it is the token table."""
    return 0 if spec.tie_embeddings else spec.vocab_size * spec.table_width


def stack_cost(spec: ModelSpec, context: int, prefix: float, memory: int = 0) -> PartCost:
    """Cost of the layers, the norms around them, shared positions, and residuals that read other layers."""
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
        # Models that see ahead have no windows, so the scores of later tokens are the rest of the square.
        total += replace(part, flops=part.flops + ahead * (part.flops_square - part.flops))
    return total


def depth_cost(spec: ModelSpec) -> PartCost:
    """Cost of residuals that read other layers of their stack."""
    layers, norm = spec.layers, spec.block.norm.parameters(spec.d_model)
    return layers[-1].norm_placement.depth_cost(spec.d_model, norm, [layer.branch_numbers for layer in layers])


def pass_flops(spec: ModelSpec, context: int) -> float:
    """FLOPs that a forward pass does once for any number of rows of `context` tokens."""
    return sum(layer.mixer.pass_flops(context) for layer in spec.layers)


class Reads(NamedTuple):
    """Number of a text's tokens that a layer runs on, and their share of the text."""

    context: int
    share: float


def reads_of(spec: ModelSpec, context: int) -> Iterator[Reads]:
    """`Reads` of each layer on a text of `context` tokens."""
    for subset in spec.subsets:
        count = context if subset is None else subset.count(context)
        yield Reads(count, count / context)


def cache_elements(spec: ModelSpec, capacity: int, memory: int = 0) -> int:
    """Cache elements per sequence of up to `capacity` tokens, with `memory` encoder tokens."""
    return outer_elements(spec, memory) + sum(layer.cache_elements(spec.d_model, capacity) for layer in spec.layers)


def outer_elements(spec: ModelSpec, memory: int) -> int:
    """Cache elements per sequence outside the layers' caches of its tokens: of `memory` encoder tokens and features."""
    kept = sum(feature.cache_elements(spec) for feature in spec.features.values())
    return kept + sum(layer.cross.cache_elements(memory) for layer in spec.layers if layer.cross)
