"""Costs of what stands around a model's blocks: the head, tables, and what reads or writes the stream between them."""

from __future__ import annotations

from zoo.site import PartCost, matmul_cost
from zoo.skips import skips_of
from zoo.spec import ModelSpec
from zoo.value_embeddings import table_widths


def shares(spec: ModelSpec) -> int:
    """Weights of skips, and two for each of the two layers that read a table of values."""
    return spec.unet_skips * skips_of(spec.n_layers) + 4 * len(table_widths(spec))


def absolute(spec: ModelSpec) -> int:
    """Parameters of tables of positions."""
    return sum(p.shared_parameters(spec.d_model, heads) for p, heads in spec.positions if p.absolute)


def outside(spec: ModelSpec) -> PartCost:
    """Head, with its transform, and factorised projections."""
    factor = factor_of(spec)
    untied = 0 if spec.tie_embeddings else spec.vocab_size * spec.table_width
    transform = 0
    if spec.head_transform is not None:
        transform = spec.d_model * spec.d_model + spec.d_model + spec.block.norm.parameters(spec.d_model)
    parameters = untied + 2 * factor + transform + spec.vocab_size * (spec.head_bias + spec.logit_gain)
    return read_out(spec) + matmul_cost(parameters, factor) + between_blocks(spec)


def between_blocks(spec: ModelSpec) -> PartCost:
    """What reads and writes the stream around layers and between them."""
    total, blocks, norm = PartCost(0), max(spec.block_of_each) + 1, spec.block.norm.parameters
    if spec.chunks is not None:
        total += spec.chunks.cost(spec.d_model, norm(spec.d_model))
    if spec.sharing is not None:
        total += spec.sharing.cost(spec.d_model, norm(spec.d_model), spec.n_layers)
    routed = [block for block, layer in zip(spec.block_of_each, spec.layers, strict=True) if layer.depth_routing]
    total += PartCost.of(len(set(routed)) * spec.d_model, 2.0 * len(routed) * spec.d_model)
    if spec.altup is not None:
        total += spec.altup.cost(spec.d_model, norm(spec.d_model), spec.n_layers, blocks)
    if spec.per_layer_embeddings is not None:
        norms = norm(spec.per_layer_embeddings.features), norm(spec.d_model)
        total += spec.per_layer_embeddings.cost(spec.d_model, norms, spec.n_layers, blocks)
    return total


def over_depth(spec: ModelSpec) -> PartCost:
    """What residuals cost that look back at other layers of their stack."""
    layers, norm = spec.layers, spec.block.norm.parameters(spec.d_model)
    return layers[-1].norm_placement.depth_cost(spec.d_model, norm, [layer.branch_numbers for layer in layers])


def flops_of_a_pass(spec: ModelSpec, context: int) -> float:
    """Of a forward pass, for any number of rows of `context` tokens."""
    return sum(layer.mixer.pass_flops(context) for layer in spec.layers)


def flops_of_a_step(spec: ModelSpec, context: int) -> float:
    """The same forward and backward, with the modules that look ahead. It is made of weights and places, and places
    have no gradient: backward takes as much again, not twice as much."""
    ahead = range(1, min(context, spec.mtp.depth + 1 if spec.mtp else 1))
    return 2.0 * (flops_of_a_pass(spec, context) + sum(spec.layers[-1].mixer.pass_flops(context - k) for k in ahead))


def layer_table(spec: ModelSpec, tokens: int | None = None) -> int:
    """Parameters of the table that every layer reads for itself, or of the rows that so many tokens read."""
    inputs = spec.per_layer_embeddings
    if inputs is None:
        return 0
    rows = inputs.rows(spec.vocab_size)
    return (rows if tokens is None else min(tokens, rows)) * spec.n_layers * inputs.features


def read_out(spec: ModelSpec) -> PartCost:
    """The work of the head, for one token."""
    transform = 0 if spec.head_transform is None else spec.d_model * spec.d_model
    return matmul_cost(0, spec.vocab_size * spec.table_width + factor_of(spec) + transform)


def factor_of(spec: ModelSpec) -> int:
    """Weights of a projection between a factorised token table and the stream."""
    return 0 if spec.embedding_dim is None else spec.embedding_dim * spec.d_model
