"""Attention residuals against equations 2, 5 and 6 of arXiv:2603.15031, with lists of what each block has made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests.zoo.slow import rms
from zoo.conformance import checks
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.flops import flops
from zoo.conformance.subject import CheckSubject


def model_of(layers: int, blocks: int, **edits: Any) -> zoo.ModelSpec:
    size = {"d_model": 16, "n_layers": layers, "vocab_size": 31, "block.mixer.heads": 2, "block.ffn.d_ff": 24}
    return zoo.load(
        "small", **size, **{"block.norm_placement": {"kind": "attention_residuals", "blocks": blocks}}, **edits
    )


def mixed(depth: Any, sources: list[Tensor]) -> Tensor:
    """Σ α_i v_i with φ(q, k) = exp(qᵀ RMSNorm(k)), one source at a time: (B, T, D)."""
    if len(sources) == 1:
        return sources[0]
    powers = [(rms(v, depth.norm.gain, 1e-6) @ depth.query).exp()[..., None] for v in sources]
    return sum(power * v for power, v in zip(powers, sources, strict=True)) / sum(powers)


@pytest.mark.parametrize(
    ("layers", "ends", "edits"),
    [
        (4, [2, 4], {}),
        (5, [3, 5], {}),
        (2, [1, 2], {"block.norm_placement.blocks": 6}),
        (4, [2, 4], {"block.topology": "parallel"}),
        (3, [3], {"block.norm_placement.blocks": 1}),
    ],
    ids=["even", "odd", "more blocks than layers", "parallel", "one block"],
)
@torch.no_grad()
def test_a_branch_reads_a_mixture_of_blocks(layers: int, ends: list[int], edits: dict[str, Any]) -> None:
    """ends: the number of layers up to the end of each block."""
    model = random_model(model_of(layers, 2).edit(edits)).double()
    tokens = random_tokens(model.spec, 2, 7)
    step = model.step(tokens, 0, None, {})
    done, own = [model.embed(tokens, step)], list[Tensor]()  # own: outputs of the block's branches so far
    for number, block in enumerate(model.blocks):
        parts = [(block.mixer_residual, lambda h, block=block: block.mixer(h, step))]
        if block.topology == "serial":
            parts.append((block.ffn_residual, lambda h, block=block: block.ffn(h, step)))
        else:
            parts = [(block.mixer_residual, lambda h, block=block: block.mixer(h, step) + block.ffn(h, step))]
        for residual, branch in parts:
            sources = [*done, sum(own)] if own else done
            own.append(branch(residual.norm_in(mixed(residual.depth, sources))))
        if number + 1 in ends:
            done, own = [*done, sum(own)], []
    expected = model.read_out(model.norm(mixed(model.closing, done)))
    torch.testing.assert_close(model(tokens), expected, rtol=1e-5, atol=1e-6)


def test_at_the_start_all_sources_count_alike() -> None:
    """w = 0, and a gradient that moves it."""
    model = zoo.build(model_of(2, 2, **{"init.output": "plain"}))
    tokens = random_tokens(model.spec, 2, 7)
    assert not model.closing.query.any()
    stream = torch.randn(1, 4, 3, 16)
    torch.testing.assert_close(model.closing(stream), stream.mean(dim=-2))
    model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    assert model.closing.query.grad.any()


@pytest.mark.parametrize(
    "edits", [{}, {"block.topology": "parallel_two_norms"}, {"block.ffn": "none", "encoder": {"n_layers": 2}}], ids=str
)
def test_odd_numbers_of_layers_do_what_every_model_must(edits: dict[str, Any]) -> None:
    subject = CheckSubject(model_of(5, 3, **edits))
    for check in (checks.parameters, flops, checks.gradients, checks.caching):
        check(subject)


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"sharing": {"blocks": 2}}, r"^sharing: .+ \(attention_residuals\) needs layers that share no weights"),
        ({"mtp": {"depth": 1}}, r"^mtp: .+ \(attention_residuals\) needs a stream that only the layers read and write"),
        (
            {"pattern": ["block", "x"], "blocks.x.norm_placement": {"kind": "hyper_connections", "n": 3}},
            "all layers must have attention_residuals; found attention_residuals, hyper_connections",
        ),
    ],
    ids=str,
)
def test_layers_that_cannot_be_counted_are_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        model_of(4, 2, **edits)
