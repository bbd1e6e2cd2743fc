"""Checks of declared FLOPs: executed FLOPs, and needed FLOPs, which budgets count."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

import zoo
from zoo.conformance.combinations import ENCODED, given_to, random_model, random_tokens
from zoo.conformance.counting import counted, expected_chunks, fused_kernels_as_products, taken_by
from zoo.conformance.subject import LENGTH, NOT_APPLICABLE, CheckSubject, read_in, require
from zoo.ffns._experts import ZeroComputeExperts
from zoo.mixers import Mixer
from zoo.mixers._linear import Stateful
from zoo.residuals.placed import NormedLayer
from zoo.spec import ModelSpec

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
        declared, found = LENGTH * mixers[block].cost(spec.d_model, LENGTH).flops, max(taken) / ROWS
        require(
            declared <= found * (1 + 1e-9),
            f"needed FLOPs of {mixers[block].kind} for a text, which budgets count: declared {declared:,.0f} (by the "
            f"`flops` of its `cost`), but {found:,.0f} suffice",
        )
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


def _decodes_otherwise(mixer: Mixer) -> bool:
    """Whether `decode_flops` does not follow from the `cost` of the mixers that this one consists of."""
    return any(type(part).decode_flops is not Mixer.decode_flops for part in mixer.components)


# Parameters that get no gradient, and those among them that cannot have one.


def silent_parameters(spec: ModelSpec, seed: int) -> set[str]:
    """Parameters that could have a gradient but do not. Raises ConformanceError if loss or gradients are not finite."""
    model, tokens = random_model(spec, seed).train(), random_tokens(spec, 2, LENGTH + 1)
    reached = _constant_experts_reached(model)
    with expected_chunks(model):  # a random model may make a single chunk, which leaves queries no choice
        loss = model.loss(tokens[:, :-1], tokens[:, 1:], **given_to(spec, 2, LENGTH))[0]
        require(loss.isfinite(), f"the loss is not finite: {loss.item()}")
        loss.backward()
    wrong = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    require(not wrong, f"gradients are not finite: those of {', '.join(sorted(wrong))}")
    silent = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    idle = tuple(f"{path}." for path, sent in reached.items() if not sent)
    return {name for name in silent if not (is_invisible(name, model) or name.startswith(idle))}


def _constant_experts_reached(model: zoo.Decoder) -> dict[str, bool]:
    """Whether any token was routed to a constant expert, keyed by module path; filled while the model runs. Similar
    tokens all go to the same experts: if none of these is constant, the constant experts get no gradient."""
    reached: dict[str, bool] = {}

    def note(path: str, module: ZeroComputeExperts, given: tuple[Tensor, ...]) -> None:
        reached[path] = reached.get(path, False) or bool((given[1] >= module.first_constant).any())

    for path, module in model.named_modules():
        if isinstance(module, ZeroComputeExperts):
            module.register_forward_pre_hook(partial(note, path))
    return reached


def is_invisible(name: str, model: zoo.Decoder) -> bool:
    """Whether a parameter may have exactly zero gradient.

    A constant added to every key of a head shifts all of its scores equally, which softmax ignores, unless positions or
    a norm follow. A scalar gain of the whole stream is divided out by the next norm, and a scalar gain before a branch
    that preserves scale (a mixer with QK norm, ReLU without biases) by the norm of the branch's output. In the first
    layer, and in a module of multi-token prediction, values are mixed with themselves, which changes nothing or scales
    the mixer's output, and a norm of the output removes the scale.
    """
    blind = ("mixer.k.bias", "blocks.0.mixer.values.weights", "block.mixer.values.weights")
    alone = ("blocks.0.mixer.value_mix.", "block.mixer.value_mix.")
    return (
        name.endswith(blind)
        or any(part in name for part in alone)
        or (model.get_parameter(name).numel() == 1 and _is_normed_after(name, model))
    )


def _is_normed_after(name: str, model: zoo.Decoder) -> bool:
    """Whether a gain of the stream, or of a branch's input, is followed by another norm."""
    path, _, norm = name.removesuffix(".gain").rpartition(".")
    if norm != "norm_in":
        return norm in ("embedding_norm", "norm_after")
    residual = model.get_submodule(path)
    is_stream = isinstance(residual, NormedLayer)  # the shortcut, too, begins after this norm and ends before the next
    return is_stream or not isinstance(getattr(residual, "norm_out", None), torch.nn.Identity | None)
