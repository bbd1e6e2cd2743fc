"""What a model costs: parameters, FLOPs per token, cache bytes. Arithmetic on the spec, no tensors. Of single passes
with a cache, see `zoo.costs_decoding`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zoo.block_spec import BlockSpec
from zoo.cache_kinds import cache_kind
from zoo.caches import CacheKind
from zoo.chunks import reads_of
from zoo.costs_around import (
    absolute,
    factor_of,
    flops_of_a_pass,
    flops_of_a_step,
    layer_table,
    outside,
    over_depth,
    read_out,
    shares,
)
from zoo.recursion import router_flops
from zoo.refusals import check_size
from zoo.site import PartCost, matmul_cost
from zoo.spec import ModelSpec
from zoo.value_embeddings import table_widths

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
    tables = spec.vocab_size * (spec.table_width + sum(table_widths(spec))) + (spec.token_types or 0) * spec.d_model
    tables += layer_table(spec)
    total = PartCost(tables) + outside(spec) + stack_cost(spec, context, prefix, memory)
    tables += absolute(spec)
    if spec.encoder_spec is not None:
        read = stack_cost(spec.encoder_spec, memory, prefix) + matmul_cost(0, factor_of(spec))
        total += read.for_share(memory / context)
        tables += absolute(spec.encoder_spec)
    trained = total + _mtp(spec, context) + _layer_losses(spec) + _training(spec, context, memory / context)
    trained += _random_depth(spec, context, memory)
    return Cost(
        spec=spec,
        context=context,
        encoder_context=memory if spec.encoder is not None else 0,
        params=trained.parameters,
        params_active=trained.parameters - trained.inactive,
        params_embedding=tables,
        flops_per_token_forward=total.flops,
        flops_per_token=(1 + BACKWARD) * trained.flops,
        flops_per_token_square=(1 + BACKWARD) * trained.flops_square,
        flops_per_token_executed=(1 + BACKWARD) * trained.flops_executed,
        flops_per_pass=flops_of_a_pass(spec, context),
        flops_per_step=flops_of_a_step(spec, context),
    )


def stack_cost(spec: ModelSpec, context: int, prefix: float, memory: int = 0) -> PartCost:
    """Blocks, and what is around them but for the head and the token table."""
    norms = (spec.has_final_norm + spec.has_embedding_norm) * spec.block.norm.parameters(spec.d_model)
    schemes = sum(scheme.shared_parameters(spec.d_model, heads) for scheme, heads in spec.positions)
    total = PartCost(norms + schemes + shares(spec)) + over_depth(spec) + PartCost.of(0, router_flops(spec, context))
    ahead = {"causal": 0.0, "prefix": prefix, "all": 1.0}[spec.visible]
    met: set[int] = set()
    for block, layer, reads in zip(spec.block_of_each, spec.layers, reads_of(spec, context), strict=True):
        part = block_cost(layer, spec.d_model, reads.context, memory).for_share(reads.share)
        if block in met:
            part = replace(part, parameters=0, inactive=0)
        met.add(block)
        # Without windows, which no such model has, what is not seen of the square is what comes later.
        total += replace(part, flops=part.flops + ahead * (part.flops_square - part.flops))
    return total


def cache_elements(spec: ModelSpec, capacity: int, memory: int = 0) -> int:
    """Numbers kept per sequence, for up to `capacity` tokens, and `memory` of the encoder's."""
    return cache_beside(spec, memory) + sum(layer.cache_elements(spec.d_model, capacity) for layer in spec.layers)


def cache_beside(spec: ModelSpec, memory: int) -> int:
    """Beside what layers keep: numbers per sequence of `memory` tokens of the encoder's and of the last chunk."""
    borders = spec.chunks.state_elements(spec.d_model) if spec.chunks is not None else 0
    return borders + sum(layer.cross.cache_elements(memory) for layer in spec.layers if layer.cross)


def _mtp(spec: ModelSpec, context: int) -> PartCost:
    """What multi-token prediction adds in training."""
    if spec.mtp is None:
        return PartCost(0)
    last, norm = spec.layers[-1], spec.block.norm.parameters(spec.d_model)

    def block(seen: int) -> PartCost:
        return block_cost(last, spec.d_model, seen) + _training_of(last, spec.d_model, seen)

    return spec.mtp.cost(spec.d_model, context, norm, block, read_out(spec))


def _random_depth(spec: ModelSpec, context: int, memory: int) -> PartCost:
    """What a random number of turns adds in training, of which some have no backward pass."""
    sharing = spec.sharing
    if sharing is None or sharing.random_depth is None:
        return PartCost(0)
    turns = sharing.turns(spec.n_layers)
    core = spec.layers[turns.start : turns.start + sharing.blocks]
    turn = matmul_cost(0, 2 * spec.d_model * spec.d_model)
    for layer in core:
        turn += block_cost(layer, spec.d_model, context, memory)
    return sharing.random_depth.training_change(turn, len(turns))


def _layer_losses(spec: ModelSpec) -> PartCost:
    """What predicting by every layer adds in training."""
    if not spec.layer_loss:
        return PartCost(0)
    closing = 0.0 if spec.altup is None else spec.altup.closing_flops(spec.d_model)
    return PartCost.of(0, (spec.n_layers - 1) * (read_out(spec).flops + closing))


def _training(spec: ModelSpec, context: int, share: float) -> PartCost:
    """What training adds to passes or leaves out of them, in mixers and FFNs. share: tokens of the encoder's for each
    of the decoder's."""
    total = PartCost(0)
    for layer, reads in zip(spec.layers, reads_of(spec, context), strict=True):
        total += _training_of(layer, spec.d_model, reads.context).for_share(reads.share)
    for layer in spec.encoder_spec.layers if spec.encoder_spec is not None else ():
        total += _training_of(layer, spec.d_model, max(1, round(share * context))).for_share(share)
    return total


def _training_of(layer: BlockSpec, d_model: int, context: int) -> PartCost:
    return layer.mixer.training_cost(d_model, context) + PartCost.of(0, -layer.ffn.dropped_flops(d_model))


def block_cost(block: BlockSpec, d_model: int, context: int, memory: int = 0) -> PartCost:
    """Costs of one resolved block, which attends to `memory` tokens where there is an encoder."""
    total = block.mixer.cost(d_model, context) + block.ffn.cost(d_model)
    if block.cross is not None:
        total += block.cross.cost(d_model, context, memory)
    for _ in range(block.branches):
        total += block.norm_placement.extra_cost(d_model)
    if block.canon is not None:
        total += block.canon.cost(d_model)
    if block.laurel is not None:
        total += block.laurel.cost(d_model, block.norm.parameters(d_model))
    return total + PartCost(block.norms * block.norm.parameters(d_model))
