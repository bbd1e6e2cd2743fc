"""Parameters that get no gradient, and those among them that cannot have one."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

import zoo
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.conformance.counting import expected_chunks
from zoo.conformance.subject import LENGTH, require
from zoo.ffns._zero_compute import ZeroComputeExperts
from zoo.residuals.normed import NormedLayer
from zoo.spec import ModelSpec


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
