"""Optimiser groups by role, and one AdamW step against the formula."""

import torch
from torch import nn

import zoo
from ablate.training.loop import train
from ablate.training.optim import adamw, split_by_role
from ablate.training.spec import TrainSpec

SMALL = {"vocab_size": 32, "d_model": 16, "n_layers": 2}


def small_model(**edits: object) -> nn.Module:
    return zoo.build(zoo.parse({**SMALL, **edits}))


def test_matrices_decay_and_gains_do_not():
    model = small_model(tie_embeddings=False)
    decayed, rest = split_by_role(model, zoo.roles(model))
    assert {id(p) for p in decayed} == {id(p) for p in model.parameters() if p.dim() == 2}
    assert {id(p) for p in rest} == {id(p) for p in model.parameters() if p.dim() == 1}
    assert rest


def test_a_tied_table_is_in_one_group_once():
    model = small_model(tie_embeddings=True)
    decayed, rest = split_by_role(model, zoo.roles(model))
    assert len(decayed) + len(rest) == len(set(map(id, decayed + rest)))
    assert model.embedding.weight in set(decayed)


def test_groups_get_their_weight_decay_and_betas():
    spec = TrainSpec(weight_decay=0.3, betas=(0.8, 0.9))
    model = small_model()
    with_decay, without = adamw(model, zoo.roles(model), spec).param_groups
    assert (with_decay["weight_decay"], without["weight_decay"]) == (0.3, 0.0)
    assert tuple(with_decay["betas"]) == (0.8, 0.9)


def test_one_step_follows_loshchilov_and_hutter():
    """θ₁ = θ₀ · (1 − lr·λ) − lr · m̂ / (√v̂ + ε); after one step m̂ = g and v̂ = g²."""
    layer = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    spec = TrainSpec(lr=0.1, warmup=0.0, schedule="constant", weight_decay=0.2, grad_clip=None)
    optimizer = adamw(layer, {"weight": "input"}, spec)
    gradient = torch.tensor([[3.0, -4.0]], dtype=torch.float64)

    def loss(_tokens, _targets):
        value = (layer.weight * gradient).sum()
        return value, value

    (step,) = train(loss, optimizer, lambda _: torch.zeros(1, 3), spec, 1, torch.enable_grad)
    expected = torch.tensor([[0.5 * 0.98 - 0.1, -1.0 * 0.98 + 0.1]], dtype=torch.float64)
    torch.testing.assert_close(layer.weight.data, expected, atol=1e-8, rtol=0)
    assert step.grad_norm == 5.0
    assert step.loss == 0.5 * 3 + 4


def test_clipping_bounds_the_gradient_and_reports_the_norm_before():
    layer = nn.Linear(2, 1, bias=False)
    seen = {}
    spec = TrainSpec(warmup=0.0, grad_clip=0.5)
    optimizer = adamw(layer, {"weight": "input"}, spec)
    optimizer.register_step_pre_hook(lambda *_: seen.update(norm=layer.weight.grad.norm().item()))

    def loss(_tokens, _targets):
        value = (layer.weight * torch.tensor([[3.0, 4.0]])).sum()
        return value, value

    (step,) = train(loss, optimizer, lambda _: torch.zeros(1, 3), spec, 1, torch.enable_grad)
    assert abs(step.grad_norm - 5.0) < 1e-6
    assert abs(seen["norm"] - 0.5) < 1e-5
