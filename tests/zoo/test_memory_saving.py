"""Ways to train in less memory change nothing: blocks that are computed again, and a batch in parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo import error_on_graph_break
from torch._dynamo.backends.common import aot_autograd

import zoo
from tests.many import few
from zoo.conformance.combinations import choices, given_to, of_rows, random_model, random_tokens
from zoo.conformance.matrix import combine
from zoo.loss import BatchShare, scored

CHANCE = {"block.dropout": 0.2, "block.stochastic_depth": 0.3, "block.mixer.dropout": 0.1, "embedding_dropout": 0.1}
LENGTH, ROWS = 11, 5
SPECS = list({spec.digest: spec for options in choices().values() for spec in [combine([o]) for o in options]}.values())
GROUPS = 8
"""Tests of several choices each: a test for each of them would take longer to collect than to run."""

Gradients = list[torch.Tensor | None]


def question(spec: zoo.ModelSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and targets of which unlike numbers count in each row."""
    tokens = random_tokens(spec, ROWS, LENGTH + 1)
    kept = torch.arange(LENGTH) % (torch.arange(ROWS)[:, None] + 1) == 0
    return tokens[:, :-1], tokens[:, 1:].masked_fill(~kept, -100)


def learnt(spec: zoo.ModelSpec, *, recompute: bool = False) -> tuple[torch.Tensor, Gradients, dict[str, torch.Tensor]]:
    """Loss, gradients, and what a training pass leaves in the model."""
    model = random_model(spec).train()
    for stack in filter(None, (model, model.encoder)):
        stack.recompute = recompute
    torch.manual_seed(7)
    loss = model.loss(*question(spec), **given_to(spec, ROWS, LENGTH))[0]
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()], dict(model.named_buffers())


@pytest.mark.parametrize("group", few(range(GROUPS), 3))
def test_blocks_computed_again_have_the_same_bits(group: int) -> None:
    for spec in SPECS[group::GROUPS]:
        torch.testing.assert_close(learnt(spec, recompute=True), learnt(spec), rtol=0, atol=0)


@pytest.mark.parametrize(
    "edits", [{}, {"block.ffn": "topk_moe"}, {"block.norm_placement": "hyper_connections"}], ids=str
)
def test_what_is_computed_again_draws_the_same_masks(edits: dict[str, str]) -> None:
    spec = zoo.load("small", d_model=16, n_layers=3, vocab_size=31, **edits, **CHANCE)
    torch.testing.assert_close(learnt(spec, recompute=True), learnt(spec), rtol=0, atol=0)


def test_computing_again_keeps_less() -> None:
    """Bytes that the graph of a loss holds: with 6 layers, those of one layer and six inputs."""
    spec = zoo.load("small", d_model=32, n_layers=6, vocab_size=31)
    tokens = random_tokens(spec, 4, 65)
    kept = []
    for recompute in (False, True):
        model = zoo.build(spec).train()
        model.recompute = recompute
        held: dict[int, int] = {}

        def pack(tensor: torch.Tensor, held: dict[int, int] = held) -> torch.Tensor:
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])[0]
        kept.append(sum(held.values()))
        loss.backward()
    assert kept[1] < kept[0] / 3


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_computing_again_is_one_graph_and_keeps_less_when_compiled(layers: int) -> None:
    """Torch gives up after 8 compilations of one function, which a graph per layer exceeds. Bytes are those of all that
    the compiled forward pass returns, most of it for the backward pass. Its losses are those of the uncompiled model,
    with dropout, too."""
    spec = zoo.load("small", d_model=32, n_layers=layers, vocab_size=31, **{"block.dropout": 0.2})
    tokens = random_tokens(spec, 4, 65)
    kept, found = [], []
    for recompute in (False, True):
        model = zoo.build(spec).train()
        model.recompute = recompute

        def forward(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            (returned,) = graph.graph.find_nodes(op="output")[0].args
            values = [each.meta["val"] for each in returned if hasattr(each, "meta")]
            sizes = [each.shape for each in values if isinstance(each, torch.Tensor)]  # states of generators: symbols
            kept.append(sum(4 * math.prod(size) for size in sizes if all(type(n) is int for n in size)))
            return backward(graph, inputs)

        def backward(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
            return make_boxed_func(graph.forward)

        torch.compiler.reset()
        partition = {"partition_fn": min_cut_rematerialization_partition}
        backend = aot_autograd(fw_compiler=forward, bw_compiler=backward, **partition)
        compiled = torch.compile(model.loss, dynamic=False, backend=backend)
        with error_on_graph_break(True):
            found.append(with_gradients(model, compiled, tokens))
        if recompute:
            found.append(with_gradients(model, model.loss, tokens))
    for one, other in zip(found[1:], found[:-1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert len(kept) == 2, "one graph each"
    assert kept[1] < kept[0] / (2 if layers == 2 else 5)


def with_gradients(model: zoo.Decoder, loss: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Gradients]:
    torch.manual_seed(7)
    model.zero_grad()
    nats: torch.Tensor = loss(tokens[:, :-1], tokens[:, 1:])[0]
    nats.backward()
    return nats.detach(), [p.grad for p in model.parameters()]


def in_parts(
    spec: zoo.ModelSpec, sizes: list[int]
) -> tuple[torch.Tensor, torch.Tensor, Gradients, dict[str, torch.Tensor]]:
    model, (tokens, targets) = random_model(spec).train(), question(spec)
    given, count = given_to(spec, ROWS, LENGTH), scored(targets)
    total, nats, start = torch.zeros(()), torch.zeros(()), 0
    for size in sizes:
        rows = slice(start, start + size)
        part = None if size == ROWS else BatchShare(count, size / ROWS)
        loss, own = model.loss(tokens[rows], targets[rows], part, **of_rows(given, rows))
        loss.backward()
        total, nats, start = total + loss.detach(), nats + own.detach(), start + size
    return total, nats, [p.grad for p in model.parameters()], dict(model.named_buffers())


@pytest.mark.parametrize("group", few(range(GROUPS), 3))
def test_the_losses_of_parts_sum_to_that_of_the_batch(group: int) -> None:
    """The losses agree to rounding: here 1e-5 of the loss, and 1e-4 of a gradient."""
    compared = 0
    for spec in SPECS[group::GROUPS]:
        before = torch.get_rng_state()
        whole = in_parts(spec, [ROWS])
        drawn = not torch.equal(torch.get_rng_state(), before)  # masks, which parts draw by themselves
        if spec.couples_rows is None and not drawn:
            torch.testing.assert_close(in_parts(spec, [2, 1, 2]), whole, rtol=1e-4, atol=1e-5)
            compared += 1
    assert compared > 0.7 * len(SPECS[group::GROUPS])


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"kind": "topk_moe", "balance_loss": 0.1}, "balance_loss"),
        ({"kind": "topk_moe", "balance_loss": 0.0, "capacity_factor": 1.0}, "capacity_factor"),
    ],
)
def test_what_couples_rows_says_so_and_does(edits: dict[str, object], reason: str) -> None:
    sizes = {"d_ff": 8, "experts": 4, "top_k": 2}
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **{"block.ffn": {**sizes, **edits}})
    assert reason in str(spec.couples_rows)
    assert not torch.allclose(in_parts(spec, [ROWS])[0], in_parts(spec, [2, 1, 2])[0], rtol=1e-5)


@pytest.mark.parametrize("bias_rate", [None, 1e-3])
def test_what_deepseek_moe_does_over_sequences_couples_nothing(bias_rate: float | None) -> None:
    ffn = {"kind": "deepseek_moe", "d_ff": 8, "experts": 4, "groups": 1, "top_groups": 1, "top_k": 2}
    losses = {"bias_rate": bias_rate, "balance_loss": 0.5, "loss_over": "sequence", "router_z_loss": 0.1}
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31, z_loss=0.01, **{"block.ffn": {**ffn, **losses}})
    assert spec.couples_rows is None
    torch.testing.assert_close(in_parts(spec, [2, 1, 2]), in_parts(spec, [ROWS]), rtol=1e-4, atol=1e-5)
