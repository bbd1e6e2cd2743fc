"""Checks of declared FLOPs: executed FLOPs, and needed FLOPs, which budgets count."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import cast

import torch
from torch import nn

import zoo
from zoo.conformance.combinations import ENCODED, random_model
from zoo.conformance.counting import counted, expected_chunks, fused_kernels_as_products, taken_by
from zoo.conformance.subject import LENGTH, NOT_APPLICABLE, CheckSubject, read_in, require
from zoo.mixers import Mixer
from zoo.mixers._linear import Stateful

ROWS = 2
"""Batch size."""
PIECES = (8, 1, LENGTH - 10, 1)
"""Lengths of the chunks in which a text is decoded; only those of a single token are compared."""


def flops(subject: CheckSubject) -> None:
    """Declared FLOPs of a training step equal those counted: executed with the chosen backends and, if no layer
    computes a recurrence in chunks, with the plain backend, over whole score matrices."""
    spec, model = subject.spec, random_model(subject.spec).train()
    declared = zoo.cost(spec, context=LENGTH, encoder_context=ENCODED)
    shared = declared.flops_per_step / (ROWS * LENGTH)
    with fused_kernels_as_products():
        _require_flops(training_flops(model), declared.flops_per_token_executed + shared, "executed")
    mixers = [mixer for layer in spec.layers for mixer in layer.mixer.components]
    if subject.thorough and not any(isinstance(mixer, Stateful) for mixer in mixers):
        with zoo.attention_backend("plain"):
            _require_flops(training_flops(model), declared.flops_per_token_square + shared, "over whole score matrices")
    needed, whole = declared.flops_per_token, declared.flops_per_token_square
    require(
        needed <= whole,
        f"declared FLOPs per token needed, {needed:,.1f}, exceed those over whole score matrices, {whole:,.1f}",
    )


def _require_flops(found: float, declared: float, what: str) -> None:
    close = math.isclose(found, declared, rel_tol=1e-9)
    require(close, f"FLOPs per token {what}: declared {declared:,.1f} (`cost`), counted {found:,.1f}")


def training_flops(model: zoo.Decoder) -> float:
    """FLOPs of a training step per token, with as many chunks as declared."""
    tokens, given = CheckSubject(model.spec).read(ROWS, LENGTH + 1)
    with expected_chunks(model), counted(model, passes=3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:], **given)[0].backward()
    return count.total / (ROWS * LENGTH)


@torch.no_grad()
def needed_flops(subject: CheckSubject) -> str | None:
    """The FLOPs that mixers declare as needed, which budgets count, equal those of decoding a token, whose query meets
    only visible keys.

    By default `decode_flops` follows from `cost`, so counting the FLOPs of single tokens also reveals wrong numbers
    of keys in `cost`. A mixer with `decode_flops` of its own (dsa, flash, mla, moba, multi_token and parallel)
    breaks this link, unless it only sums those of its components, as parallel does: its `cost` must not exceed the
    FLOPs of a whole text, counting only visible scores in `attend`. Bidirectional models, and models with layers
    that run on a subset of the tokens, are not checked.
    """
    spec, model = subject.spec, subject.model
    if spec.visible == "all" or any(subset is not None for subset in spec.subsets):
        return NOT_APPLICABLE
    mixers = {block: layer.mixer for block, layer in zip(spec.block_of_each, spec.layers, strict=True)}
    modules = {block: cast(nn.Module, model.blocks[block].mixer) for block in mixers}
    tokens, given = subject.read(ROWS)
    cache = model.new_cache(ROWS, LENGTH, encoder_capacity=ENCODED)
    decoded = taken_by(modules, model, partial(read_in, model, tokens, list(PIECES), cache, given))
    for block, mixer in mixers.items():
        _require_decoded(mixer, spec.d_model, decoded[block])
    others = {block: module for block, module in modules.items() if _decodes_otherwise(mixers[block])}
    whole = taken_by(others, model, partial(model, tokens, **given)) if others else {}
    for block, taken in whole.items():
        _require_at_most(mixers[block], spec.d_model, max(taken))
    return None


def _require_decoded(mixer: Mixer, d_model: int, taken: list[float]) -> None:
    """taken: FLOPs of each call; a chunk takes several calls if layers share a block."""
    source = "`decode_flops`" if _decodes_otherwise(mixer) else "the `flops` of its `cost`, the first of its `Keys`"
    ends = list(itertools.accumulate(PIECES))
    for call, found in enumerate(taken):
        piece = call * len(PIECES) // len(taken)
        end, counted_per_row = ends[piece], found / ROWS
        declared = mixer.decode_flops(d_model, end) + mixer.pass_flops(end) / ROWS
        require(
            PIECES[piece] > 1 or math.isclose(counted_per_row, declared, rel_tol=1e-9),
            f"needed FLOPs of {mixer.kind} for token {end} of a text, which budgets count: declared {declared:,.0f} "
            f"(by {source}), counted {counted_per_row:,.0f} while decoding",
        )


def _require_at_most(mixer: Mixer, d_model: int, found: float) -> None:
    declared = LENGTH * mixer.cost(d_model, LENGTH).flops
    require(
        declared <= found / ROWS * (1 + 1e-9),
        f"needed FLOPs of {mixer.kind} for a text, which budgets count: declared {declared:,.0f} (by the `flops` of "
        f"its `cost`), but {found / ROWS:,.0f} suffice",
    )


def _decodes_otherwise(mixer: Mixer) -> bool:
    """Whether `decode_flops` does not follow from the `cost` of the mixers that this one consists of."""
    return any(type(part).decode_flops is not Mixer.decode_flops for part in mixer.components)
