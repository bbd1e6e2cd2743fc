"""What a model costs: parameters, FLOPs per token, cache bytes. Arithmetic on the spec, no tensors."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.caches import CacheKind, cache_kind
from zoo.site import PartCost, matmul_cost
from zoo.spec import BlockSpec, ModelSpec

BACKWARD = 2
"""A backward pass costs two matrix products for each one of the forward pass."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True)
class Cost:
    """Costs of a spec at a context length.

    params counts every parameter; params_active those that one token's forward pass uses (not all experts, and no
    modules of multi-token prediction); params_embedding the token table and tables of positions. flops_per_token counts
    training (forward and backward, multi-token prediction too) and only the scores that the mask lets through;
    flops_per_token_square counts whole T × T score matrices, as counters of matrix products do.
    """

    spec: ModelSpec
    context: int
    params: int
    params_active: int
    params_embedding: int
    flops_per_token_forward: float
    flops_per_token: float
    flops_per_token_square: float

    def cache_bytes(self, batch: int, context: int, dtype: object = "float32", cache: CacheKind | str = "plain") -> int:
        """Bytes that `new_cache(batch, context, dtype, cache)` allocates; of pages, after `context` tokens. dtype:
        a torch dtype or its name."""
        size, kind = BYTES[str(dtype).removeprefix("torch.")], cache_kind(cache)
        mixers = [layer.mixer for layer in self.spec.layers]
        kind.check(mixers)
        plain = size * sum(mixer.cache_elements(context) for mixer in mixers)
        return batch * (plain + sum(kind.extra_bytes(mixer, context, size) for mixer in mixers))


def cost(spec: ModelSpec, context: int = 1024) -> Cost:
    """Costs at sequences of `context` tokens."""
    tables = spec.vocab_size * spec.table_width
    tables += sum(p.shared_parameters(spec.d_model, heads) for p, heads in spec.positions if p.absolute)
    total = PartCost(tables, 0.0, 0.0) + _outside(spec)
    for layer in spec.layers:
        total += block_cost(layer, spec.d_model, context)
    trained = total + _mtp(spec, context)
    return Cost(
        spec=spec,
        context=context,
        params=trained.parameters,
        params_active=trained.parameters - trained.inactive,
        params_embedding=tables,
        flops_per_token_forward=total.flops,
        flops_per_token=(1 + BACKWARD) * trained.flops,
        flops_per_token_square=(1 + BACKWARD) * trained.flops_square,
    )


@dataclass(frozen=True)
class PassCost:
    """What a pass with a cache takes: FLOPs, and numbers that must come from memory or go to it.

    parameters: those that the pass uses, each once: of a token table only the rows looked up, unless it is the head
    too; of a mixture of experts those that the tokens are expected to be sent to. cache_elements: what reading a prompt
    writes to the cache, or what decoding reads of it. Activations are not counted.
    """

    flops: float
    parameters: float
    cache_elements: int

    def bytes(self, dtype: object) -> float:
        """With parameters and cache in this type: a torch dtype or its name."""
        return (self.parameters + self.cache_elements) * BYTES[str(dtype).removeprefix("torch.")]


def prefill_cost(spec: ModelSpec, batch: int, context: int) -> PassCost:
    """Reading `batch` prompts of `context` tokens into an empty cache, up to the logits after each prompt's last."""
    head = _read_out(spec).flops
    per_token = cost(spec, context).flops_per_token_forward - head
    states = sum(layer.mixer.state_flops(spec.d_model, context) for layer in spec.layers)
    return PassCost(
        batch * (context * per_token + head + states),
        _parameters_read(spec, batch * context),
        batch * sum(layer.mixer.cache_elements(context) for layer in spec.layers),
    )


def decode_cost(spec: ModelSpec, batch: int, context: int) -> PassCost:
    """One token for each of `batch` rows: the `context`-th of its row, with those before it in the cache."""
    flops = _outside(spec).flops
    for layer in spec.layers:
        rest = block_cost(layer, spec.d_model, context).flops - layer.mixer.cost(spec.d_model, context).flops
        flops += rest + layer.mixer.decode_flops(spec.d_model, context)
    cache = sum(layer.mixer.cache_elements(context) for layer in spec.layers)
    return PassCost(batch * flops, _parameters_read(spec, batch), batch * cache)


def _parameters_read(spec: ModelSpec, tokens: int) -> float:
    """Parameters that a pass over `tokens` tokens is expected to use. It does not run multi-token prediction."""
    rows = spec.vocab_size if spec.tie_embeddings else min(tokens, spec.vocab_size)
    read: float = rows * spec.table_width + _outside(spec).parameters
    for scheme, heads in spec.positions:
        if scheme.absolute:
            read += min(scheme.shared_parameters(spec.d_model, heads), tokens * spec.d_model)
    for layer in spec.layers:
        read += block_cost(layer, spec.d_model, 1).parameters - layer.ffn.cost(spec.d_model).parameters
        read += layer.ffn.parameters_read(spec.d_model, tokens)
    return read


def longest_text(spec: ModelSpec) -> int | None:
    """The most tokens that the model can read, where a table of positions ends; None for any number."""
    return min((scheme.longest for scheme, _ in spec.positions if scheme.longest is not None), default=None)


def _outside(spec: ModelSpec) -> PartCost:
    """Head, factorised projections, norms and position schemes outside the blocks."""
    factor = 0 if spec.embedding_dim is None else spec.embedding_dim * spec.d_model
    untied = 0 if spec.tie_embeddings else spec.vocab_size * spec.table_width
    part = _read_out(spec) + matmul_cost(untied + 2 * factor, factor)
    norms = (spec.has_final_norm + spec.has_embedding_norm) * spec.block.norm.parameters(spec.d_model)
    schemes = sum(p.shared_parameters(spec.d_model, heads) for p, heads in spec.positions if not p.absolute)
    return part + PartCost(norms + schemes + spec.vocab_size * spec.head_bias, 0.0, 0.0)


def _read_out(spec: ModelSpec) -> PartCost:
    """The work of the head, for one token."""
    factor = 0 if spec.embedding_dim is None else spec.embedding_dim * spec.d_model
    return matmul_cost(0, spec.vocab_size * spec.table_width + factor)


def _mtp(spec: ModelSpec, context: int) -> PartCost:
    """What multi-token prediction adds in training."""
    if spec.mtp is None:
        return PartCost(0, 0.0, 0.0)
    last, norm = spec.layers[-1], spec.block.norm.parameters(spec.d_model)
    return spec.mtp.cost(
        spec.d_model, context, norm, lambda seen: block_cost(last, spec.d_model, seen), _read_out(spec)
    )


def block_cost(block: BlockSpec, d_model: int, context: int) -> PartCost:
    """Costs of one resolved block."""
    total = block.mixer.cost(d_model, context) + block.ffn.cost(d_model)
    for _ in range(block.branches):
        total += block.norm_placement.extra_cost(d_model)
    return total + PartCost(block.norms * block.norm.parameters(d_model), 0.0, 0.0)
