"""Cost of passes with a cache, prefill and decoding of one token: FLOPs, and elements that memory must move."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import cast

from zoo.costs import (
    BYTES,
    cost,
    depth_cost,
    outer_cost,
    outer_elements,
    pass_flops,
    reads_of,
    stack_cost,
    tables,
)
from zoo.errors import SpecError
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class PassCost:
    """Cost of a pass with a cache: FLOPs, and elements read from memory or written to it.

    parameters: those that the pass uses, counted once for each layer that has them. Of a token table only the rows
    looked up count, unless it is also the head; of a mixture of experts, those that tokens are expected to reach.
    cache_elements: written by prefill, or read by decoding. Activations do not count.
    """

    flops: float
    parameters: float
    cache_elements: int

    def bytes(self, dtype: object) -> float:
        """Bytes moved, with parameters and cache in this type: a torch dtype or its name."""
        return (self.parameters + self.cache_elements) * BYTES[str(dtype).removeprefix("torch.")]


def prefill_cost(spec: ModelSpec, batch: int, context: int) -> PassCost:
    """Cost of reading `batch` prompts of `context` tokens into an empty cache, up to the logits after each prompt.

    With mask `prefix` the whole prompt is the prefix. With an encoder the encoder reads the prompt; keys and values of
    its output and the decoder's first token count, too. Raises SpecError for mask `all`.
    """
    _decodes(spec)
    if spec.encoder is not None:
        return _encode_cost(spec, batch, context)
    head = spec.read_out.flops
    per_token = cost(spec, context, prefix=1.0).flops_per_token_forward - head
    each = list(zip(spec.layers, reads_of(spec, context), strict=True))
    states = sum(layer.mixer.state_flops(spec.d_model, reads.context) for layer, reads in each)
    return PassCost(
        batch * (context * per_token + head + states) + pass_flops(spec, context),
        _parameters_read(spec, batch * context),
        batch * sum(_cache_used(spec, context)),
    )


def decode_cost(spec: ModelSpec, batch: int, context: int) -> PassCost:
    """Cost of decoding one token for each of `batch` rows: the `context`-th of its row, with the earlier ones and, if
    the model has an encoder, `context` encoder tokens in the cache. Raises SpecError for mask `all`."""
    _decodes(spec)
    return _written(spec, batch, context, context)


def _encode_cost(spec: ModelSpec, batch: int, context: int) -> PassCost:
    """Prefill of an encoder and its decoder, both of which look up the token table."""
    encoder = cast(ModelSpec, spec.encoder_spec)
    read = stack_cost(encoder, context, 0.0).flops + 2.0 * spec.factor
    crosses = [layer.cross for layer in spec.layers if layer.cross]
    read += sum(cross.memory_flops(spec.d_model, context) for cross in crosses) / context
    first = _written(spec, batch, 1, context)
    rows = min(batch * context, 0 if spec.tie_embeddings else spec.vocab_size - min(batch, spec.vocab_size))
    parameters = _blocks_read(encoder, batch * context) + rows * spec.table_width
    parameters += sum(cross.memory_parameters(spec.d_model) for cross in crosses)
    return PassCost(batch * context * read + first.flops, parameters + first.parameters, first.cache_elements)


def _written(spec: ModelSpec, batch: int, context: int, memory: int) -> PassCost:
    """Cost of the `context`-th token of each row, with the earlier ones and `memory` encoder tokens in the cache."""
    flops, unused = outer_cost(spec, context).flops + depth_cost(spec).flops, 0
    for layer, (seen, share) in zip(spec.layers, reads_of(spec, context), strict=True):
        rest = layer.cost(spec.d_model, seen).flops - layer.mixer.cost(spec.d_model, seen).flops
        flops += share * (rest + layer.mixer.decode_flops(spec.d_model, seen)) + layer.cost_around(spec.d_model).flops
        if layer.cross is not None:
            flops += layer.cross.decode_flops(spec.d_model, memory) - layer.cross.decode_flops(spec.d_model, 0)
            unused += layer.cross.memory_parameters(spec.d_model)
    shares = [1.0, *(reads.share for reads in reads_of(spec, context))]
    read = sum(map(operator.mul, shares, _cache_used(spec, context, memory)))
    read += sum(x.mixer.borrowed_elements(context) for x in spec.layers)
    flops = batch * flops + pass_flops(spec, context)
    return PassCost(flops, _parameters_read(spec, batch) - unused, round(batch * read))


def _cache_used(spec: ModelSpec, context: int, memory: int = 0) -> list[int]:
    """Cache elements in use after `context` tokens: those outside the layers first, then those of each layer."""
    reads = zip(spec.layers, reads_of(spec, context), strict=True)
    return [
        outer_elements(spec, memory),
        *(layer.cache_elements(spec.d_model, seen) for layer, (seen, _) in reads),
    ]


def _parameters_read(spec: ModelSpec, tokens: int) -> float:
    """Parameters that a pass over `tokens` tokens is expected to use. It does not run multi-token prediction."""
    own, *others = tables(spec)
    looked_up = own.parameters(None if spec.tie_embeddings else tokens) + sum(
        each.parameters(tokens) for each in others
    )
    return looked_up + outer_cost(spec, 1).parameters + _blocks_read(spec, tokens)


def _blocks_read(spec: ModelSpec, tokens: int) -> float:
    """Parameters that a pass over `tokens` tokens reads of blocks, residuals, norms and positions."""
    read: float = depth_cost(spec).parameters
    read += (spec.has_final_norm + spec.has_embedding_norm) * spec.block.norm.parameters(spec.d_model)
    for scheme, heads in spec.positions:
        held = scheme.shared_parameters(spec.d_model, heads)
        read += min(held, tokens * spec.d_model) if scheme.absolute else held
    met: set[int] = set()
    for block, layer, subset in zip(spec.block_of_each, spec.layers, spec.subsets, strict=True):
        runs = 1.0 if subset is None else 1 - (1 - 1 / subset.ratio) ** tokens  # probability that any token is chosen
        beside: float = layer.cost(spec.d_model, 1).parameters - layer.ffn.cost(spec.d_model).parameters
        beside += layer.ffn.parameters_read(spec.d_model, tokens) - layer.mixer.cost(spec.d_model, 1).parameters
        read += runs * (beside + layer.mixer.parameters_read(spec.d_model, tokens))
        read += 0 if block in met else layer.cost_around(spec.d_model).parameters
        met.add(block)
    return read


def _decodes(spec: ModelSpec) -> None:
    """Raise SpecError for a model with mask `all`, which does not decode."""
    if spec.visible == "all":
        raise SpecError("visible", "an encoder has no KV cache and does not decode")
